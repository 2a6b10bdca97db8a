"""The agent loop as a machine without I/O: its events, commands, limits and tool executions."""
