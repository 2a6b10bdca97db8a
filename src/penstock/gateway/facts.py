"""The facts of the upstreams of a gateway: read when a model is first asked for, with the key of its requests."""

from __future__ import annotations

from msgspec.structs import replace

from penstock.asgi.access import key_digest
from penstock.errors import PenstockError
from penstock.events import Usage
from penstock.gateway.asking import UpstreamRequest, wire_of
from penstock.gateway.config.settings import GatewaySettings, Upstream
from penstock.gateway.routing import Candidate
from penstock.gateway.servers.fitting import known_window
from penstock.gateway.servers.overflow import TokenRatios, check_window, cut_note
from penstock.gateway.upstream_keys import upstream_key
from penstock.providers import complete_url, find_base_url, find_key, find_provider, join_url
from penstock.servers.asking import ServerAddress
from penstock.servers.facts import ServerFacts
from penstock.servers.kept_facts import WAIT_SECONDS, KeptFacts
from penstock.wires import find_facts

UNKNOWN = ServerFacts()


class UpstreamFacts:
    """The facts of the upstreams whose provider needs no key: these may be servers of any kind."""

    def __init__(self, kept: KeptFacts | None = None) -> None:
        self._kept = kept or KeptFacts()
        self._settings: GatewaySettings | None = None
        self._ratios = TokenRatios()

    def use(self, settings: GatewaySettings) -> None:
        """Forget the facts if the settings are others than before."""
        if settings is not self._settings:
            if self._settings is not None:
                self._kept.clear()
                self._ratios = TokenRatios()
            self._settings = settings

    async def of(self, candidate: Candidate, client_key: str, seconds: float = WAIT_SECONDS) -> ServerFacts:
        """The facts of the upstream and the model of a candidate; unknown ones if they take longer than this."""
        upstream = candidate.upstream
        if not has_facts(upstream):
            return UNKNOWN
        try:
            address = address_of(upstream, client_key)
        except PenstockError as error:
            return ServerFacts(model=candidate.model, failure=str(error))
        facts = await self._kept.find(_place(upstream, client_key), address, candidate.model, seconds)
        if not candidate.context:
            return facts
        return replace(facts, window=known_window(candidate, wire_of(upstream), facts))

    async def check(self, candidate: Candidate, request: UpstreamRequest, client_key: str) -> None:
        """Raise a `ContextLengthError` if the server counts more tokens than its window has; note what may not fit."""
        facts, upstream = request.facts, candidate.upstream
        ratio = self._ratios.of(upstream.name, candidate.model)
        if facts.window is None or request.estimate * ratio < facts.window:
            return
        address, wire = address_of(upstream, client_key), wire_of(upstream)
        for note in await check_window(facts, address, wire, request.sent, request.estimate):
            request.report.note(note)

    def learn(self, candidate: Candidate, request: UpstreamRequest, usage: Usage, client_key: str) -> None:
        """Learn from the tokens that the server has counted; note that it has cut the prompt."""
        facts = request.facts
        if note := cut_note(facts, request.estimate, usage):
            request.report.note(note)
        elif usage.input_tokens not in (0, request.estimate):  # which may be the estimate itself
            self._ratios.learn(candidate.upstream.name, candidate.model, usage.input_tokens, request.estimate)
        if facts.server and facts.window is None:  # it has loaded the model now
            self.expire(candidate, client_key)

    def expire(self, candidate: Candidate, client_key: str) -> None:
        """Read the facts again at the next request: the server has failed, or may have loaded the model."""
        self._kept.expire(_place(candidate.upstream, client_key))

    def close(self) -> None:
        """Stop reading."""
        self._kept.clear()


def has_facts(upstream: Upstream) -> bool:
    """Whether an upstream is asked for facts: not a provider on the Internet, and not a script."""
    provider = find_provider(upstream.provider)[1]
    return not provider.needs_key and provider.auth == "bearer" and upstream.via is None


def address_of(upstream: Upstream, client_key: str) -> ServerAddress:
    """The address of an upstream, with its headers and its key; raises if the key is missing."""
    provider, paths = find_provider(upstream.provider)[1], find_facts(wire_of(upstream)).passed_paths
    url = complete_url(provider, upstream.url) if upstream.url else find_base_url(upstream.name, provider)
    models = join_url(url, "/models") if paths is None or not paths.root else ""
    return ServerAddress(url, request_headers(upstream, client_key), models, upstream.name)


def request_headers(upstream: Upstream, client_key: str) -> dict[str, str]:
    """The headers of a request: those of the upstream, and its key if there is one."""
    key = upstream_key(upstream, client_key)
    if key is None:
        key = find_key(*find_provider(upstream.provider))
    return {**({"authorization": f"Bearer {key}"} if key else {}), **upstream.headers}


def _place(upstream: Upstream, client_key: str) -> tuple[str, str, str, str]:
    """What facts belong to. It has the URL: after a change of the settings, the server may be another one."""
    return upstream.name, upstream.provider, upstream.url, key_digest(client_key)
