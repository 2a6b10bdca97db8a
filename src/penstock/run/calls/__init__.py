"""The calls of one step: their executions, and when each may start."""
