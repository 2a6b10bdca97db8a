"""The ASGI app of the inspector, for recordings, and for programs without a Penstock server."""

from __future__ import annotations

from collections.abc import Collection

from penstock.asgi.access import Access
from penstock.asgi.app import ASGIApp
from penstock.asgi.limits import ServerLimits
from penstock.asgi.metrics import Metrics
from penstock.asgi.request import HTTPRequest
from penstock.asgi.response import respond
from penstock.asgi.routes import Route, Routes
from penstock.asgi.sending import Sender
from penstock.inspector.endpoints import PREFIX, InspectorEndpoint, InspectorEndpoints
from penstock.inspector.inspections import Inspections

LIMITS = ServerLimits(answer=1 << 40)


def app(inspections: Inspections, *, token: str = "", hosts: Collection[str] = ()) -> InspectorApp:
    """An ASGI app with the inspector's page at `/inspect`. It can be mounted into other apps.

    Without a `token`, the app answers only clients on its own machine.
    """
    return InspectorApp(inspections, Access(token=token, hosts=tuple(hosts)))


class InspectorApp(ASGIApp):
    """The inspector as an ASGI app: see `app`."""

    public_paths = ("/", PREFIX)

    def __init__(self, inspections: Inspections, access: Access) -> None:
        super().__init__(access, LIMITS, Metrics("penstock_inspector"))
        endpoints = InspectorEndpoints(inspections, LIMITS)
        self._inspections = inspections
        self._routes: Routes[InspectorEndpoint] = Routes(
            *(Route("GET", path, endpoint) for path, endpoint in endpoints.routes())
        )

    async def close(self) -> None:
        """End all feeds."""
        self._inspections.close()

    async def route(self, request: HTTPRequest, send: Sender, tenant: str) -> None:
        if request.path.rstrip("/") == "":
            root = request.scope.get("root_path", "")
            await respond(request, send, 307, b"", headers={"location": f"{root}{PREFIX}"})
            return
        route, parts = self._routes.find(request)
        await route.endpoint(request, send, parts)
