"""Facts of model servers: what a server is, its context window, and whether it takes tools, read from its endpoints."""
