"""Healing of responses: calls in the text, damaged arguments, reasoning marks, and a report of what was healed."""
