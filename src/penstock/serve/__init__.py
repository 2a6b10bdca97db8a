"""Serving agents over HTTP: an ASGI app with resumable runs, for browsers, SDKs and other programs."""

from penstock.asgi.limits import ServerLimits
from penstock.serve.app import ServeApp, app
from penstock.serve.client.client import AsyncClient, Client
from penstock.serve.client.errors import RefusedError, ServerError, UnreachableError
from penstock.serve.client.remote_run import AsyncRemoteRun, RemoteRun

__all__ = [
    "AsyncClient",
    "AsyncRemoteRun",
    "Client",
    "RefusedError",
    "RemoteRun",
    "ServeApp",
    "ServerError",
    "ServerLimits",
    "UnreachableError",
    "app",
]
