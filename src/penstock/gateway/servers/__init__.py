"""What the facts of servers are used for: windows, overflows, tool choices, checks of responses and of servers."""
