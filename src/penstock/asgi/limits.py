"""The limits of a server: sizes of requests and responses, and timeouts."""

from __future__ import annotations

from msgspec import Struct

from penstock.errors import UsageError

MEGABYTE = 1024 * 1024


class ServerLimits(Struct, frozen=True, kw_only=True):
    """The caps of a server; sizes are in bytes, times in seconds.

    | limit | of |
    |---|---|
    | `head` | the head of a request |
    | `body` | the body of a request |
    | `depth` | the nesting of JSON in a body |
    | `values` | the JSON values in a body: commas, colons and opening brackets; slow ones count for more |
    | `messages`, `tools` | the messages and the tools in one request |
    | `event` | one event that is sent to a client; a larger one is shortened |
    | `answer` | everything that is sent in one response |
    | `head_seconds`, `body_seconds` | how long a client may take for the head and for the body of a request |
    | `write_seconds` | how long a client may read nothing before its connection is closed |
    | `keep_alive_seconds` | how long a stream is silent before a comment is sent |
    | `connections` | open connections of the server; half of them are for clients that have shown a token |
    | `address_connections` | open connections of one address that has not shown a token |
    | `tenant_connections` | open connections of one tenant; without tenants, of one address that has shown a token |
    | `memory` | the memory for request bodies, and for what is made of them |
    | `client_memory` | the request bodies of one client, as they came, and 32 bytes for each of their values |
    | `waiting` | the long requests of one client that wait for its turn |
    | `runs`, `tenant_runs` | runs at once: in all, and of one tenant |
    | `retry_seconds` | how long a run continues after a client that uses it as a model has lost its connection |
    | `run_seconds` | how long a run may take whose agent has no `Limits(seconds=…)`, without its waits for people |
    """

    head: int = 64 * 1024
    body: int = 4 * MEGABYTE
    depth: int = 64
    values: int = 200_000
    messages: int = 2_000
    tools: int = 256
    event: int = MEGABYTE
    answer: int = 64 * MEGABYTE
    head_seconds: float = 5.0
    body_seconds: float = 10.0
    write_seconds: float = 30.0
    keep_alive_seconds: float = 15.0
    connections: int = 2_000
    address_connections: int = 100
    tenant_connections: int = 200
    memory: int = 512 * MEGABYTE
    client_memory: int = 64 * MEGABYTE
    waiting: int = 32
    runs: int = 1_000
    tenant_runs: int = 100
    retry_seconds: float = 10.0
    run_seconds: float = 3_600.0

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if not value > 0 and (name, value) != ("retry_seconds", 0):
                raise UsageError(f"ServerLimits({name}=) must be more than 0, not {value!r}")
