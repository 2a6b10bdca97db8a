"""The settings of a gateway: its upstreams, the names of its models, and what it heals."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import force_setattr, replace

from penstock.errors import UsageError
from penstock.healing.settings import Healing
from penstock.model.connect import Connector
from penstock.providers import ANY_SERVER, PROVIDERS, find_provider
from penstock.wires.shared.web_tools import ARGUMENTS

HostedTools = Literal["drop", "refuse"]
"""What happens to tools that another provider would run: they are left out, or the request is refused."""
NATIVE, RAW, AUTO = "native", "raw", "auto"
"""The ways to ask for calls that are not dialects: see `read_calls`."""
CLIENT_KEY = "client"
"""The key of an upstream that gets the key of the client."""
PROVIDER_KEY = "provider"
"""The key of an upstream that gets only the one in the provider's own variable."""
ENVIRONMENT = "env:"


class Upstream(Struct, frozen=True, kw_only=True):
    """A server or provider behind the gateway.

    `provider` is one of the registry, `url` its base URL if it is another one. `key` is `env:NAME` for a variable of
    the environment, `client` for the key that the client sent, or `provider` for the provider's own variable. Without
    it, that variable is read, and if it is empty, the client's key is passed on: by a gateway that asks for none
    itself, and if there are several upstreams, only to the first, and only if no other has `client`. With
    `streaming=False`, responses are not asked for as streams. Times are in seconds: `first_token` until a response
    begins, `idle` between two pieces of it. `context` is the context window in tokens; it is set for each request where
    the protocol has a field for it.
    """

    name: str
    provider: str = ANY_SERVER
    url: str = ""
    wire: str = ""
    key: str = ""
    headers: Mapping[str, str] = {}
    streaming: bool = True
    connect: float = 10.0
    first_token: float = 600.0
    idle: float = 120.0
    total: float = 3600.0
    retries: int = 2
    context: int = 0
    via: Connector | None = None

    def __post_init__(self) -> None:
        if self.key not in ("", CLIENT_KEY, PROVIDER_KEY) and not self.key.startswith(ENVIRONMENT):
            raise UsageError(
                f"the key of the upstream {self.name} must be 'client', 'provider' or 'env:NAME', not the key itself"
            )


class Target(Struct, frozen=True):
    """A model of an upstream; without a name, the requested one."""

    upstream: str
    model: str = ""


HEALING = Healing(reasoning_calls=True)
"""What a gateway heals by default: its clients are agents, which stop at a call in reasoning."""


class Watch(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a gateway does about agents that stop too early or run in circles. Everything is off by default.

    | switch | what it does |
    |---|---|
    | `empty_answers` | an empty response after a tool result: the model is asked once more |
    | `reasoning_only` | a response with nothing but reasoning: the model is asked once more |
    | `repeated_calls` | after this many equal calls with equal results, the model is reminded; after twice as many, \
the conversation ends with a reason; 0: off |
    """

    empty_answers: bool = False
    reasoning_only: bool = False
    repeated_calls: int = 0

    def __post_init__(self) -> None:
        if self.repeated_calls and self.repeated_calls < MIN_REPEATS:
            raise UsageError(f"repeated_calls must be 0 (off), or {MIN_REPEATS} or more, not {self.repeated_calls}")


MIN_REPEATS = 2
"""The lowest number of equal calls that is a repetition."""
NO_WATCH = Watch()


class ModelRoute(Struct, frozen=True, kw_only=True):
    """Where requests for the models with a name, or a pattern such as `gpt-*`, go; `fallbacks` are tried in order."""

    pattern: str
    target: Target
    fallbacks: tuple[Target, ...] = ()
    healing: Healing = HEALING
    hosted_tools: HostedTools = "drop"
    calls: str = NATIVE
    watch: Watch = NO_WATCH
    context: int = 0


class WebTool(Struct, frozen=True, kw_only=True):
    """What runs a web tool (`web_search`, `web_fetch`) that a client declares and the provider does not have.

    `command` gets the query or the URL on standard input, and of the environment only `PATH` and the like, and the
    variables in `env`. Instead of it, `mcp` is the URL or the command of an MCP server, `tool` the name of its tool and
    `argument` that of the argument, if they are others. `seconds` is the timeout, `characters` the longest result.
    """

    command: tuple[str, ...] = ()
    mcp: str | tuple[str, ...] = ""
    tool: str = ""
    argument: str = ""
    env: tuple[str, ...] = ()
    seconds: float = 30.0
    characters: int = 50_000

    def __post_init__(self) -> None:
        if bool(self.command) == bool(self.mcp):
            raise UsageError("a web tool needs either a command or an MCP server (mcp)")


class GatewaySettings(Struct, frozen=True, kw_only=True):
    """The upstreams of a gateway, in order; models without a route go to the first one.

    `model` replaces the name of every model without a route. `hosted_tools` says what happens to tools that another
    provider would run, `calls` how models without a route are asked for calls, and `watch` what is done about agents
    that stop too early or run in circles. `web_tools` are the tools of other
    providers that the gateway runs, by name: `web_search`, `web_fetch`. `withheld` is set here: the upstreams that get
    no key of clients because there are several; their `key` is then `provider`.
    """

    upstreams: Mapping[str, Upstream]
    routes: tuple[ModelRoute, ...] = ()
    model: str = ""
    healing: Healing = HEALING
    hosted_tools: HostedTools = "drop"
    calls: str = NATIVE
    watch: Watch = NO_WATCH
    web_tools: Mapping[str, WebTool] = {}
    withheld: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        self._withhold_keys()
        if unknown := [name for name in self.web_tools if name not in ARGUMENTS]:
            raise UsageError(f"web_tools.{unknown[0]}: there are only {' and '.join(ARGUMENTS)}")
        if not self.upstreams:
            raise UsageError("a gateway needs an upstream, as in --upstream http://127.0.0.1:8080/v1")
        check_calls(read_calls(self.calls), next(iter(self.upstreams.values())))
        for route in self.routes:
            calls = read_calls(route.calls)
            for target in (route.target, *route.fallbacks):
                if target.upstream not in self.upstreams:
                    known = ", ".join(self.upstreams)
                    raise UsageError(f"models.{route.pattern}: there is no upstream {target.upstream!r}, only {known}")
                check_calls(calls, self.upstreams[target.upstream])

    def _withhold_keys(self) -> None:
        """Of several upstreams, those with `client` get the client's key, and if there is none, the first."""
        is_named = any(upstream.key == CLIENT_KEY for upstream in self.upstreams.values())
        others = [*self.upstreams][0 if is_named else 1 :] if len(self.upstreams) > 1 else []
        if withheld := tuple(name for name in others if not self.upstreams[name].key):
            closed = {name: replace(self.upstreams[name], key=PROVIDER_KEY) for name in withheld}
            force_setattr(self, "upstreams", {**self.upstreams, **closed})
            force_setattr(self, "withheld", (*self.withheld, *withheld))


def read_calls(value: object) -> str:
    """The way to ask for calls: `native`, `raw`, `auto`, or the name of a dialect; raises if it is none of them."""
    problem = ""
    if isinstance(value, str):
        if value in (NATIVE, RAW, AUTO):
            return value
        from penstock.dialects.prompt import find_prompt  # most gateways need no dialect to start

        try:
            find_prompt(value)  # raises if it is not a dialect, or can only be read
            return value
        except UsageError as error:
            problem = f" ({error})"
    raise UsageError(f'calls must be "native", "raw", "auto" or a dialect such as "xml", not {value!r}{problem}')


def check_calls(calls: str, upstream: Upstream) -> None:
    """Raises if a server cannot be asked for unparsed text, or not in this protocol."""
    provider = find_provider(upstream.provider)[1]
    if calls == RAW and (provider.unparsed is None or upstream.wire not in ("", provider.wire)):
        able = ", ".join(f'"{name}"' for name, provider in PROVIDERS.items() if provider.unparsed is not None)
        raise UsageError(
            f'calls = "raw": {upstream.name} is not known to return unparsed text; if it is a server that does, set '
            f"its provider ({able}), otherwise use a dialect"
        )


def upstreams_by_name(upstreams: Any) -> dict[str, Upstream]:
    """Upstreams by their names; raises if two have the same."""
    named: dict[str, Upstream] = {}
    for upstream in upstreams:
        if upstream.name in named:
            raise UsageError(f"two upstreams are called {upstream.name}; name them, as in --upstream NAME=URL")
        named[upstream.name] = upstream
    return named
