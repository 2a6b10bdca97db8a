"""Watches the loop of an agent through its requests: doubtful ends, repeated calls, and the prompt cache."""
