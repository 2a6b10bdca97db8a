"""The store in a PostgreSQL database, for many machines."""
