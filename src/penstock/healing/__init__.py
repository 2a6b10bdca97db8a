"""Healing of responses, without I/O: calls in the text, damaged arguments, reasoning marks, and a report of it."""
