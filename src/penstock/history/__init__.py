"""Histories: reading them from any shape, exporting, checking and repairing them."""
