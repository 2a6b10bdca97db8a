"""The paths of an app: which function answers which request."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Generic, TypeVar

from penstock.asgi.request import HTTPRequest
from penstock.asgi.response import not_allowed, not_found

E = TypeVar("E", bound=Callable[..., Awaitable[None]])


class Route(Generic[E]):
    """A path, with `{name}` for parts that vary, a method, and the function that answers."""

    def __init__(self, method: str, path: str, endpoint: E) -> None:
        self.method = method
        self.path = path
        self.endpoint = endpoint
        parts = (f"(?P<{part[1:-1]}>[^/]+)" if part.startswith("{") else re.escape(part) for part in path.split("/"))
        self._pattern = re.compile("/".join(parts))

    def match(self, path: str) -> Mapping[str, str] | None:
        """The variable parts of a matching path; None if the path does not match."""
        match = self._pattern.fullmatch(path)
        return match.groupdict() if match else None


class Routes(Generic[E]):
    """The routes of an app."""

    def __init__(self, *routes: Route[E]) -> None:
        self.routes = routes

    def find(self, request: HTTPRequest) -> tuple[Route[E], Mapping[str, str]]:
        """The route of a request, and the variable parts of its path."""
        methods: set[str] = set()
        path = request.path.rstrip("/") or "/"
        for route in self.routes:
            if (parts := route.match(path)) is not None:
                if route.method == request.method or (request.method == "HEAD" and route.method == "GET"):
                    return route, parts
                methods.add(route.method)
        raise not_allowed(methods) if methods else not_found(request, self._similar(path))

    def _similar(self, path: str) -> str:
        """The path that was probably meant: base URLs often lack `/v1`, or have it twice."""
        literal = (route.path for route in self.routes if "{" not in route.path and route.path != "/")
        return next((known for known in literal if known.endswith(path) or path.endswith(known)), "")
