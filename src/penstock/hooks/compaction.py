"""Compaction: keeps the history of a run below a number of tokens.

Old results of tools are shortened first. If that is not enough, the oldest exchanges are replaced by a summary, or left
out with a note. An exchange is removed whole, so that no call is ever without its result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from penstock.agent.step import Step
from penstock.errors import PenstockError, UsageError
from penstock.events import Refusal, Text, ToolCall, ToolCallInvalid, Usage
from penstock.history.tokens import estimate_tokens
from penstock.hooks.large_results import WIRE
from penstock.jsontext.values import canonical_json
from penstock.loggers import get_logger
from penstock.messages import SUMMARY, Message, Part, ToolResult, join_messages, user
from penstock.model.model import Model

NOTE = "The earlier part of the conversation was left out."

_LEFT_OUT = "\n[… {} characters were left out …]\n"

_PROMPT = (
    "Summarize this conversation between a user and an assistant with tools, for the assistant, which continues with "
    "your summary instead of the conversation. Keep the task, decisions, facts, names, numbers, file paths, results "
    "that still matter, and what is left to do. Write at most {words} words, and nothing else.\n\n"
)
_FAILED = "the summary of a history failed, so a part of it is left out: %s"
_logger = get_logger("penstock.hooks")
Count = Callable[[Sequence[Message]], int]


def compact(
    max_tokens: int,
    *,
    model: Model | str | None = None,
    target: float = 0.5,
    keep: int = 4,
    max_result: int = 400,
    summary_words: int = 400,
    count: Count = estimate_tokens,
) -> Callable[[Step], Any]:
    """A hook that permanently shortens the history when it exceeds `max_tokens`.

    It then shortens results to `max_result` characters, without their images and files, from the oldest on, and
    replaces the oldest exchanges by a summary of `model`, until `target` of the tokens are left; without a model, or if
    that fails, a note replaces them.
    The first user message and the last `keep` exchanges stay as they are, unless `max_tokens` cannot be kept otherwise.
    If what must stay has more than `max_tokens`, a warning is logged, and a summary is made only when it replaces as
    many tokens as a compaction frees. `count` counts tokens; instructions and tools are not counted.
    """
    if max_tokens < 1 or not 0 < target <= 1 or keep < 1:
        raise UsageError("compact needs max_tokens of 1 or more, target between 0 and 1, and keep of 1 or more")
    rules = _Rules(max_tokens, int(max_tokens * target), keep, max_result, count)
    summarizer = Model(model) if isinstance(model, str) else model

    report = _Report(rules)

    async def compact_history(step: Step) -> Step | None:
        if count(step.history) <= max_tokens:
            return None
        parts = _split(rules, step.history)
        summary, usage = NOTE, None
        if parts.removed and summarizer is not None:
            summary, usage = await _summary(summarizer, [*parts.summaries, *parts.removed], summary_words)
        shorter = _joined(rules, parts, summary)
        report.add(count(shorter))
        return step.add_usage(usage, summarizer).replace_history(shorter)

    return compact_history


class _Rules(Struct, frozen=True):
    max_tokens: int
    target: int
    keep: int
    max_result: int
    count: Count

    @property
    def least(self) -> int:
        """The tokens that a summary must replace at least, if the history stays too long anyway."""
        return max(self.max_tokens - self.target, self.max_tokens // 4)


class _Parts(Struct, frozen=True):
    """The parts of a history that is too long: first messages, their summaries, removed and kept messages."""

    head: list[Message]
    summaries: list[Message]
    removed: list[Message]
    kept: list[Message]


class _Report:
    """Warns once if a history cannot be shortened enough."""

    def __init__(self, rules: _Rules) -> None:
        self._rules = rules
        self._has_warned = False

    def add(self, tokens: int) -> None:
        """Report the tokens of a history after compaction."""
        if tokens > self._rules.max_tokens and not self._has_warned:
            self._has_warned = True
            _logger.warning(
                "compact(%d) cannot keep a history below its limit, as the first message of the user and the last %d "
                "exchanges stay: it has %d tokens; raise max_tokens, or pass a smaller keep",
                self._rules.max_tokens, self._rules.keep, tokens,
            )  # fmt: skip


def _split(rules: _Rules, history: Sequence[Message]) -> _Parts:
    """Shorten the old results, and find the exchanges to remove."""
    first = next((index for index, message in enumerate(history) if message.role == "user"), -1) + 1
    head, exchanges = list(history[:first]), _exchanges(history[first:])
    old, recent = exchanges[: -rules.keep], exchanges[-rules.keep :]
    left = rules.count(history)
    for number, exchange in enumerate(old):
        if left <= rules.target:
            break
        shorter = [_shortened(message, rules.max_result) for message in exchange]
        left -= rules.count(exchange) - rules.count(shorter)
        old[number] = shorter
    sizes = [rules.count(exchange) for exchange in old]
    fixed, removed = left - sum(sizes), 0
    while left > rules.target and removed < len(old):
        left -= sizes[removed]
        removed += 1
    if fixed > rules.max_tokens and sum(sizes) < rules.least:  # else it would happen at every step
        removed = 0
    head, summaries = _without_summaries(head) if removed else (head, [])
    return _Parts(head, summaries, _flat(exchanges[:removed]), _flat([*old[removed:], *recent]))


def _exchanges(messages: Sequence[Message]) -> list[list[Message]]:
    """The messages in groups that can be removed: a response with the results of its calls, or user messages."""
    groups: list[list[Message]] = []
    for message in messages:
        begins = message.role == "assistant" or not groups or (message.role == "user" and groups[-1][0].role != "user")
        if begins and message.role != "tool":
            groups.append([message])
        elif groups:
            groups[-1].append(message)
        else:
            groups.append([message])
    return groups


def _joined(rules: _Rules, parts: _Parts, summary: str) -> list[Message]:
    """The history again, with the summary in its first user message."""
    head, kept = parts.head, parts.kept
    if parts.removed:
        text = user(f"{SUMMARY}{summary}")
        head = [*head[:-1], join_messages(head[-1], text)] if head and head[-1].role == "user" else [*head, text]
    if kept and head and kept[0].role == "user" == head[-1].role:
        head, kept = [*head[:-1], join_messages(head[-1], kept[0])], kept[1:]
    if rules.count([*head, *kept]) > rules.max_tokens:  # what is left are recent results
        share = max(rules.max_result, 4 * rules.target // max(1, sum(len(message.results) for message in kept)))
        newest = max((index for index, message in enumerate(kept) if message.role == "assistant"), default=-1)
        kept = [_shortened(message, share, keeps_media=index > newest) for index, message in enumerate(kept)]
    return [*head, *kept]


def _without_summaries(head: list[Message]) -> tuple[list[Message], list[Message]]:
    """The first messages without an earlier summary and the text joined to it; both go into the next summary."""
    parts = head[-1].parts if head else ()
    texts = [part.text if isinstance(part, Text) else "" for part in parts]
    start = next((index for index, text in enumerate(texts) if text.startswith(SUMMARY)), -1)
    if start < 0:
        return head, []
    rest = [replace(head[-1], parts=parts[:start])] if start else []
    return [*head[:-1], *rest], [replace(head[-1], parts=parts[start:])]


def _shortened(message: Message, most: int, *, keeps_media: bool = False) -> Message:
    """The message with shorter results, and without the images and files in them; the same object if it has neither."""
    parts = tuple(_short_part(part, most, keeps_media) for part in message.parts)
    return message if parts == message.parts else replace(message, parts=parts)


def _short_part(part: Part, most: int, keeps_media: bool) -> Part:
    if not isinstance(part, ToolResult):
        return part
    media = tuple(content for content in part.content if not isinstance(content, Text))
    if len(part.text) <= most and (keeps_media or not media):
        return part
    text = part.text
    if len(text) > most:
        half = max(0, most - len(_LEFT_OUT.format(len(text)))) // 2  # so that a short result is not shortened again
        text = text[:half] + _LEFT_OUT.format(len(text) - 2 * half) + text[len(text) - half :]
    state = tuple(own for own in part.state if own.wire == WIRE)  # a provider's would have what is left out
    if keeps_media:
        return replace(part, content=(Text(0, text), *media), state=state)
    note = f"\n[{len(media)} images or files were left out]" if media else ""
    return ToolResult(part.call_id, part.name, (Text(0, (text + note).lstrip("\n")),), part.is_error, state)


def _flat(groups: Iterable[list[Message]]) -> list[Message]:
    return [message for group in groups for message in group]


async def _summary(model: Model, messages: Sequence[Message], words: int) -> tuple[str, Usage | None]:
    """A summary by the model, and its usage; the note if the summary is missing or incomplete."""
    try:
        turn = await model.acomplete(_PROMPT.format(words=words) + transcript(messages))
    except PenstockError as error:
        _logger.warning(_FAILED, error)
        return NOTE, None
    if turn.finish_reason in ("error", "cut", "content_filter") or not turn.text.strip():
        _logger.warning(_FAILED, turn.error.message if turn.error else f"it ended with {turn.finish_reason}")
        return NOTE, turn.usage
    return turn.text.strip(), turn.usage


MAX_PART = 2000
"""The characters of a text, a call or a result to be summarized; of a longer one the middle is left out."""
MAX_TRANSCRIPT = 400_000
"""The characters of a conversation to be summarized; of a longer one the middle is left out."""


def transcript(messages: Iterable[Message]) -> str:
    """The messages as text, one paragraph per part."""
    return _cut("\n\n".join(line for message in messages for line in _lines(message)), MAX_TRANSCRIPT)


def _lines(message: Message) -> Iterator[str]:
    for part in message.parts:
        match part:
            case Text() | Refusal():
                yield f"{message.role}: {_cut(part.text, MAX_PART)}"
            case ToolCall():
                yield f"call of {part.name}: {_cut(canonical_json(part.arguments), MAX_PART)}"
            case ToolCallInvalid():
                yield f"invalid call of {part.name}: {_cut(part.arguments_raw, MAX_PART)}"
            case ToolResult():
                yield f"{'error' if part.is_error else 'result'} of {part.name}: {_cut(part.text, MAX_PART)}"
            case _:
                pass


def _cut(text: str, most: int) -> str:
    half = most // 2
    return text if len(text) <= most else f"{text[:half]} … {text[-half:]}"
