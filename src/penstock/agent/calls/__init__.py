"""Calls of user code in a run: tools, approvals, hooks and guards. `running_tools` starts every tool."""
