"""`check` and the strict providers, written independently, agree on what is refused, with listed exceptions."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest

from penstock import ProviderName, UsageError, check, export_messages, repair
from penstock.messages import user
from penstock.providers import PROVIDERS
from penstock.testing.wires.judge import JUDGES
from penstock.wires import wire_name
from tests.cases import each
from tests.strict_bodies import BAD as ALL_BAD
from tests.strict_bodies import GOOD as ALL_GOOD

PROVIDER: dict[str, ProviderName] = {
    "openai-chat": "azure", "mistral": "mistral", "cohere": "cohere", "ollama": "ollama", "anthropic": "anthropic",
    "bedrock": "bedrock", "gemini": "google", "openai-responses": "openai",
}  # fmt: skip
BAD = {wire: rows for wire, rows in ALL_BAD.items() if wire in PROVIDER}
GOOD = {wire: rows for wire, rows in ALL_GOOD.items() if wire in PROVIDER}
"""The bodies for providers on their own wires, which `check` knows; `google` has another one than Interactions."""
UNSEEN = {
    "no part of a history": {
        "no tools", "no length", "an odd tool", "a choice of schemas", "no model", "a choice without tools",
        "no messages", "no contents",
    },
    "matters only where a request ends": {"the model last", "a thought last", "white space last", "the model alone"},
    "lost in reading, which takes more than the provider": {
        "arguments as text", "arguments as an object", "a result as text", "openai-chat: no parts", "no calls",
        "openai-chat: nothing said", "a null", "parts", "no base64", "another vendor's block", "a thought",
        "a field of others", "a signature", "gemini: a call after words",
    },
    "only its owner can tell": {
        "a foreign signature", "another signature", "an altered secret", "a foreign secret", "a forgotten item",
        "openai-responses: a foreign id",
    },
    "depends on the model": {"an unsigned call", "a system message", "a late system message"},
}  # fmt: skip
"""What strict providers refuse and `check` does not find, by the reason."""
CAREFUL = {("gemini", 0): "misordered_results"}
"""What `check` finds in bodies that the strict provider takes: Gemini's own guide asks for the order of the calls."""


@each(
    ("wire", "claim", "body"),
    [pytest.param(wire, *row[:2], id=f"{wire}: {row[0]}") for wire, rows in BAD.items() for row in rows],
)
def test_check_finds_what_a_provider_refuses(wire: Any, claim: str, body: Any) -> None:
    try:
        found = bool(check(body, PROVIDER[wire]))
    except UsageError as error:  # it cannot even be read, and says where
        found = bool(str(error))
    assert found != any({claim, f"{wire}: {claim}"} & claims for claims in UNSEEN.values())


@each(
    ("wire", "at", "body"),
    [
        pytest.param(wire, at, body, id=f"{wire} {at}")
        for wire, bodies in GOOD.items()
        for at, body in enumerate(bodies)
        if {"messages", "contents", "input"} & body.keys()
    ],
)
def test_check_finds_nothing_in_what_a_provider_accepts(wire: Any, at: int, body: Any) -> None:
    found = {problem.kind for problem in check(body, PROVIDER[wire])}
    assert found == ({CAREFUL[wire, at]} if (wire, at) in CAREFUL else set())


def is_secret(wire: str, claim: str) -> bool:
    """Whether nobody but the provider can know that it will be refused."""
    return claim == "no base64" or bool({claim, f"{wire}: {claim}"} & UNSEEN["only its owner can tell"])


@each(
    ("wire", "body"),
    [
        pytest.param(wire, row[1], id=f"{wire}: {row[0]}")
        for wire, rows in BAD.items()
        for row in rows
        if not is_secret(wire, row[0])
    ],
    parts=4,
)
def test_a_repaired_history_is_accepted_by_every_strict_provider(wire: Any, body: Any) -> None:
    for there, provider in PROVIDER.items():
        with suppress(UsageError):  # what cannot even be read
            history = [*repair(repair(body), provider)]
            if not history or history[-1].role != "user":
                history.append(user("Go on."))
            sent = export_messages(history, wire_name(PROVIDERS[provider].wire), "m", provider)
            refused = next(JUDGES[there]({**sent, "model": "m", "max_tokens": 9, **TOOLS.get(there, {})}, "m"), None)
            assert refused is None, (there, sent)


BODIES = [
    *((wire, row[0], row[1]) for wire, rows in BAD.items() for row in rows),
    *((wire, str(at), body) for wire, bodies in GOOD.items() for at, body in enumerate(bodies)),
]


@each(("wire", "body"), [pytest.param(wire, body, id=f"{wire}: {id}") for wire, id, body in BODIES])
def test_check_finds_nothing_in_a_repaired_history_for_its_own_provider(wire: Any, body: Any) -> None:
    for provider in (None, *takers(wire)):
        with suppress(UsageError):  # what cannot even be read
            repaired = repair(body, provider)
            assert check(repaired, provider) == []
            assert repair(repaired, provider) == repaired
            assert bool(repaired.changes) <= bool(check(body, provider)), "what is good stays as it is"


def takers(wire: str) -> list[Any]:
    """The providers that take a body of this wire."""
    if wire == "mistral":
        return ["mistral"]
    return [name for name, row in PROVIDERS.items() if row.wire == wire or (wire == "openai-chat" and name == "openai")]


LOOK = {"type": "object", "properties": {}}
TOOLS: dict[str, Any] = {
    "anthropic": {"tools": [{"name": "look", "input_schema": LOOK}]},
    "bedrock": {"toolConfig": {"tools": [{"toolSpec": {"name": "look", "inputSchema": {"json": LOOK}}}]}},
}
