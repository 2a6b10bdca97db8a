"""The context that the endpoints of the app share."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Literal

from msgspec import Struct

from penstock.asgi.access import Access
from penstock.asgi.limits import ServerLimits
from penstock.asgi.metrics import Metrics
from penstock.asgi.readiness import Readiness
from penstock.asgi.request import HTTPRequest, Send
from penstock.serve.ai_sdk.call_parts import Version
from penstock.serve.feeds.feeds import Feeds
from penstock.serve.hosting import Host
from penstock.serve.models.retries import OpenResponses
from penstock.serve.operations.log_watch import LogWatch
from penstock.serve.operations.run_metrics import RunMetrics
from penstock.serve.runs.shared_answers import SharedAnswers

ModelApprovals = Literal["decline", "approve", "wait"]
"""What happens to calls that need approval, if the client uses the agent as a model and cannot be asked."""


class ServeContext(Struct, frozen=True, kw_only=True):
    """The runs, their readers and the rules of one app."""

    host: Host
    feeds: Feeds
    messages: SharedAnswers  # messages of runs, as JSON
    responses: OpenResponses  # to clients of model protocols
    access: Access
    limits: ServerLimits
    metrics: Metrics
    run_metrics: RunMetrics
    watch: LogWatch
    readiness: Readiness
    ai_sdk: Version
    model_approvals: ModelApprovals


class Call(Struct, frozen=True):
    """One request to an endpoint, and who sent it."""

    request: HTTPRequest
    send: Send
    tenant: str
    parts: Mapping[str, str]  # the parts of the path that vary


Endpoint = Callable[[ServeContext, Call], Awaitable[None]]
