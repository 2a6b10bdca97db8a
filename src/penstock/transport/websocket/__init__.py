"""Connections to providers over WebSocket, which requests of one conversation share. They need the extra `ws`."""
