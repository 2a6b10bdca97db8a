"""Connections to providers: HTTP for sync and async code, pools and proxies."""
