"""The parts of request readers: the messages and settings that a client sends to a server."""
