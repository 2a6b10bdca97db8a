"""A coding agent for the terminal: it reads, edits and tests a project, and asks before it changes anything."""
