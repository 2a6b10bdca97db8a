"""Dialects: the ways in which models write tool calls into their text, and the parsers for them."""
