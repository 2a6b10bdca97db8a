"""Runs whose workers are killed and frozen, on every store: `python -m tests.chaos --seconds 600`."""
