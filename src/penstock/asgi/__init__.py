"""ASGI: requests with caps and timeouts, streams that notice when a client leaves, and who may use a server."""
