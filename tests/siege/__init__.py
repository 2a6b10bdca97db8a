"""Attacks on the servers, each with a good client beside it: `python -m tests.siege`."""
