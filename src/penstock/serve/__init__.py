"""Serving agents over HTTP: an ASGI app with resumable runs, for browsers, SDKs and other programs."""

from penstock.asgi.limits import ServerLimits
from penstock.serve.app import ServeApp, app

__all__ = ["ServeApp", "ServerLimits", "app"]
