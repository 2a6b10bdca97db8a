"""ASGI: requests with limits and timeouts, streams that notice disconnected clients, and access control."""
