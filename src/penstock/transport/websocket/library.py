"""The client of the `websockets` library; importing this module imports it."""

from __future__ import annotations

from websockets.asyncio.client import connect


class Connect(connect):
    """Opens a connection without following redirects, which would send the API key to another address."""

    def process_redirect(self, exc: Exception) -> Exception | str:
        return exc
