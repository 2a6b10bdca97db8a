"""The log of a run: its events in a store, from which any process can read and continue it."""
