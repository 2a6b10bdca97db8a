"""The journal of a request: its line in the access log, its metrics, and its report of healing. It has no content."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from penstock.asgi.access import key_digest
from penstock.asgi.request import RejectedRequest
from penstock.events import Error, Usage
from penstock.gateway.answer import Answer
from penstock.gateway.attempts import Attempt, Attempts
from penstock.gateway.config.settings import NATIVE
from penstock.gateway.context import Call, GatewayContext
from penstock.gateway.healed import HealedResponse
from penstock.gateway.inspecting import InspectedCall
from penstock.gateway.routing import Candidate
from penstock.gateway.watch.prompt_cache import CacheReport, read_prompt
from penstock.healing.report import HealingReport
from penstock.history.client_request import ClientRequest
from penstock.jsontext.shown_text import one_line
from penstock.loggers import get_logger
from penstock.messages import Message
from penstock.wires.shared.encode_response.response_errors import MALFORMED_CALL

logger = get_logger("penstock.gateway")

CLIENT_LEFT = 499
"""The logged status if the client disconnected before the response."""


class Reads(Struct, frozen=True):
    """The network reads of a response: passed on as plain text, decoded although text flowed, and decoded in all."""

    text: int = 0
    left: int = 0
    decoded: int = 0


class Journal:
    """The events of one request; `write` reports them once, at its end."""

    def __init__(self, context: GatewayContext, call: Call, inspected: InspectedCall) -> None:
        self._context = context
        self._call = call
        self._inspected = inspected
        self.attempts = Attempts()
        self.reads = Reads()
        self._started = time.monotonic()
        self._first = 0.0  # seconds until the response began
        self._model = ""
        self._messages: tuple[Message, ...] = ()  # of the client
        self._answer: Answer | None = None
        self._first_choice = ""  # the first upstream
        self._usage: Usage | None = None
        self._problem = ""
        self._notes: list[str] = []

    def begin(self, request: ClientRequest, candidates: Sequence[Candidate]) -> None:
        """The request was read."""
        self._model = request.settings.model
        self._messages = request.messages
        self._first_choice = candidates[0].upstream.name

    def answered(self, answer: Answer) -> None:
        """An upstream has begun to answer."""
        self._answer = answer
        self._first = time.monotonic() - self._started

    def end(self, usage: Usage | None, error: Error | None) -> None:
        """The response was written; `error` if one ended it early."""
        self._usage = usage
        is_single = self.attempts.answered == 1  # otherwise the usage is that of several requests
        if usage is not None and error is None and self._answer is not None and is_single:
            key = self._context.client_key(self._call.request)
            self._context.facts.learn(self._answer.candidate, self._answer.upstream_request, usage, key)
        if error is not None:
            is_content = error.code == MALFORMED_CALL
            self._problem = f"the response ended with an error: {error.code if is_content else error.message}"

    def note(self, text: str) -> None:
        """Something was done about the request itself."""
        self._notes.append(text)

    def fail(self, error: RejectedRequest) -> None:
        """The request was answered with an error."""
        self._problem = error.message

    def leave(self) -> None:
        """The client has left."""
        self._problem = "the client has left"
        self._inspected.leave()

    def write(self) -> None:
        """Report the request."""
        answer, metrics = self._answer, self._context.metrics
        upstream = answer.candidate.upstream.name if answer else ""
        report = answer.upstream_request.report if answer else HealingReport()
        response = HealedResponse(
            id=self._call.request.id, path=self._call.request.path, model=self._model, upstream=upstream,
            answered_by=answer.candidate.model if answer else "",
            calls=answer.upstream_request.calls if answer else "", status=self._call.send.status,
            problem=one_line(self._problem),
            asked=[replace(attempt, failure=one_line(attempt.failure)) for attempt in self.attempts.entries],
            healed=report.build(), notes=[*self._notes, *report.notes], rescued=tuple(report.rescued),
            dropped=[f"{item.place}: {item.why}" for item in answer.upstream_request.dropped] if answer else (),
        )  # fmt: skip
        self._context.healed.add(response)
        if answer is not None and self._context.inspections is not None:
            self._inspected.report_cache(self._compare(answer))
        self._inspected.end(response, self._problem)
        for healed in response.healed:
            metrics.add("healed", healed.count, quirk=str(healed.quirk), upstream=upstream)
        metrics.add("answers", upstream=upstream or self._first_choice, problem="yes" if self._problem else "no")
        if upstream and upstream != self._first_choice:
            metrics.add("fallbacks", upstream=upstream)
        if self._usage is not None:
            metrics.add("tokens", self._usage.input_tokens, kind="input", upstream=upstream)
            metrics.add("tokens", self._usage.output_tokens, kind="output", upstream=upstream)
        if answer is not None:
            metrics.add("first_event_seconds", self._first, upstream=upstream)
        if self.reads.decoded:
            metrics.add("reads", self.reads.text, lane="text")
            metrics.add("reads", self.reads.decoded, lane="stages")
            metrics.add("text_lane_left", self.reads.left)
        if logger.isEnabledFor(logging.INFO):
            self._log(response)

    def _compare(self, answer: Answer) -> CacheReport:
        """Compare the prompt with the previous one of its conversation."""
        sent, candidate = answer.upstream_request.decodings.context, answer.candidate
        key = key_digest(self._context.client_key(self._call.request))
        place = key, candidate.upstream.name, candidate.upstream.url, candidate.model
        prompt = answer.upstream_request.prompt
        if prompt is None:
            prompt = read_prompt(sent.wire, sent.tools, sent.messages, self._messages)
        return self._context.prompts.compare(prompt, place, self._usage)

    def _log(self, response: HealedResponse) -> None:
        total = time.monotonic() - self._started
        failed = any(attempt.failure for attempt in response.asked)
        details = {
            "failed": response.problem,
            "asked": ", ".join(_in_words(attempt, response.problem) for attempt in response.asked) if failed else "",
            "healed": ", ".join(f"{healed.quirk} ({healed.what})" for healed in response.healed),
            "calls": response.calls if response.calls != NATIVE else "",
            "notes": "; ".join(response.notes),
            "left out": "; ".join(response.dropped),
        }
        logger.info(
            "%s %s model=%s upstream=%s status=%s first=%.0fms total=%.0fms%s",
            response.id, one_line(response.path), one_line(response.model) or "-", response.upstream or "-",
            response.status or CLIENT_LEFT, self._first * 1000, total * 1000,
            "".join(f" | {name}: {one_line(text)}" for name, text in details.items() if text),
            extra={"fields": self._fields(response, total)},
        )  # fmt: skip

    def _fields(self, response: HealedResponse, total: float) -> dict[str, Any]:
        """The line for programs."""
        usage = self._usage
        return {
            "request": response.id, "path": one_line(response.path), "model": one_line(response.model),
            "upstream": response.upstream, "status": response.status or CLIENT_LEFT,
            "first_seconds": round(self._first, 4), "total_seconds": round(total, 4), "problem": response.problem,
            "healed": [healed.quirk for healed in response.healed],
            "input_tokens": usage.input_tokens if usage else None,
            "output_tokens": usage.output_tokens if usage else None,
        }  # fmt: skip


def _in_words(attempt: Attempt, problem: str) -> str:
    """An attempt for the log; without text that the problem of the request already contains."""
    is_known = not attempt.failure or attempt.failure in problem
    return attempt.upstream if is_known else f"{attempt.upstream} ({attempt.failure})"
