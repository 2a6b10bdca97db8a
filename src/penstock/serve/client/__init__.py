"""The client of a served agent: its runs look like local ones, and survive lost connections."""
