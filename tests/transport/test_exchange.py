"""The exchange without I/O: its commands, retries and deadlines, by a clock that the tests advance."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import penstock
from penstock import (
    ConnectionFailed,
    Decoder,
    Error,
    Finish,
    OverloadedError,
    RateLimitError,
    Retries,
    Retry,
    Timeouts,
)
from penstock.testing import (
    Reply,
    call,
    drop,
    frames,
    say,
)
from penstock.transport.attempt import MAX_ERROR_BODY
from penstock.transport.commands import (
    CloseConnection,
    Deliver,
    HTTPRequest,
    HTTPResponseHead,
    OpenRequest,
    ReadBytes,
    ReadTimedOut,
    Sleep,
)
from penstock.transport.exchange import Exchange
from tests.asking import (
    KEY,
    ONCE,
)
from tests.growth import assert_linear


class Clock:
    """A clock that tests advance."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def exchange(clock: Clock | None = None, timeouts: Timeouts | None = None, retries: Retries | None = None) -> Exchange:
    return Exchange(
        request=HTTPRequest("http://localhost/v1", {"authorization": f"Bearer {KEY}"}, b"{}"),
        new_decoding=lambda: Decoder("openai-chat"),
        timeouts=timeouts or Timeouts(),
        retries=retries or Retries(),
        clock=clock or Clock(),
        calendar=time.time,
    )


OK = HTTPResponseHead(200, {})
FRAMES = frames("openai-chat", Reply(say("Let me look."), call("weather", {"city": "Rome"})))


def walk(of: Exchange, *outcomes: Any) -> list[Any]:
    """The commands of an exchange whose requests and reads have these outcomes, and the error that it raises."""
    left = iter(outcomes)
    commands = of.commands()
    seen: list[Any] = []
    try:
        command = next(commands)
        while True:
            seen.append(command)
            if not isinstance(command, OpenRequest | ReadBytes):
                command = next(commands)
                continue
            outcome = next(left)
            if callable(outcome):
                outcome = outcome()
            command = commands.throw(outcome) if isinstance(outcome, Exception) else commands.send(outcome)
    except StopIteration:
        assert next(left, None) is None, "not all of it was wanted"
    except penstock.ProviderError as error:
        seen.append(error)
    return seen


def delivered(seen: list[Any]) -> list[Any]:
    return [chunk for command in seen if isinstance(command, Deliver) for chunk in command.chunks]


def test_delays_double_up_to_a_maximum_and_are_randomised() -> None:
    retries = Retries(attempts=6, first_delay=1, longest_delay=5)
    seen = walk(exchange(retries=retries), *[HTTPResponseHead(503, {}), b""] * 7)
    pauses = [command.seconds for command in seen if isinstance(command, Sleep)]
    for pause, full in zip(pauses, [1, 2, 4, 5, 5, 5], strict=True):
        assert 0.75 * full <= pause <= full
    assert isinstance(seen[-1], OverloadedError)
    others = walk(exchange(retries=retries), *[HTTPResponseHead(503, {}), b""] * 7)
    assert pauses != [command.seconds for command in others if isinstance(command, Sleep)]


def test_a_request_may_be_retried_more_often_than_a_delay_can_be_doubled() -> None:
    count = 1030
    retries = Retries(attempts=count, first_delay=0.01, longest_delay=0.01)
    seen = walk(exchange(retries=retries), *[HTTPResponseHead(503, {}), b""] * (count + 1))
    assert isinstance(seen[-1], OverloadedError)
    assert sum(isinstance(command, Sleep) for command in seen) == count


def test_an_error_body_in_small_pieces_is_linear() -> None:
    def work(size: int) -> Callable[[], object]:
        outcomes = [HTTPResponseHead(400, {}), *[b"x"] * size, b""]
        return lambda: walk(exchange(), *outcomes)

    assert_linear(work, MAX_ERROR_BODY // 16)


def test_the_connection_is_closed_before_each_delay_and_at_the_end() -> None:
    seen = walk(exchange(), HTTPResponseHead(503, {}), b"", OK, *FRAMES, b"")
    kinds = [type(command) for command in seen if not isinstance(command, ReadBytes | Deliver)]
    assert kinds == [OpenRequest, CloseConnection, Sleep, OpenRequest, CloseConnection]


def test_an_error_is_not_retried_if_the_delay_exceeds_the_total_timeout() -> None:
    limited = exchange(timeouts=Timeouts(total=10))
    seen = walk(limited, HTTPResponseHead(429, {"retry-after": "11"}), b"")
    assert [type(command) for command in seen[-2:]] == [CloseConnection, RateLimitError]


def test_the_total_timeout_runs_from_the_first_request() -> None:
    clock = Clock()
    limited = exchange(clock, Timeouts(connect=20, first_event=60, total=10))
    clock.now += 100  # created, but not yet sent
    commands = limited.commands()
    first = next(commands)
    assert isinstance(first, OpenRequest)
    assert (first.connect, first.first_byte) == (10, 10)
    clock.now += 4
    assert next_of(commands, OK) == ReadBytes(6)
    clock.now += 4
    assert isinstance(next_of(commands, FRAMES[0] + FRAMES[1]), Deliver)
    assert next(commands) == ReadBytes(2)
    clock.now += 2
    tell = commands.throw(ReadTimedOut("late"))
    assert tell == CloseConnection()
    [error, finish] = next_tell(commands)
    assert (error.message, error.retryable) == ("the response took longer than 10 seconds (timeouts.total)", False)
    assert finish.reason == "cut"


def next_of(commands: Any, result: Any) -> Any:
    return commands.send(result)


def next_tell(commands: Any) -> Any:
    command = next(commands)
    assert isinstance(command, Deliver)
    return command.chunks


def test_a_deadline_that_has_passed_before_a_read_is_named_in_the_error() -> None:
    clock = Clock()

    def late() -> bytes:
        clock.now += 7
        return b": ping\n\n"

    seen = walk(exchange(clock, Timeouts(first_event=5, total=6), ONCE), OK, late)
    assert str(seen[-1]) == "the response took longer than 6 seconds (timeouts.total)"


def test_keep_alives_are_not_events_but_signs_of_life() -> None:
    clock = Clock()

    def ping() -> bytes:
        clock.now += 4
        return b": ping\n\n"

    silence = ReadTimedOut("late")
    seen = walk(exchange(clock, Timeouts(first_event=5, idle=1, total=18), ONCE), OK, ping, ping, ping, silence)
    assert [command.timeout for command in seen if isinstance(command, ReadBytes)] == [5, 5, 5, 5]
    assert str(seen[-1]) == "no event received within 5 seconds (timeouts.first_event)"
    seen = walk(exchange(clock, Timeouts(first_event=5, idle=1, total=14), ONCE), OK, ping, ping, ping, silence)
    assert [command.timeout for command in seen if isinstance(command, ReadBytes)] == [5, 5, 5, 2]
    assert str(seen[-1]) == "the response took longer than 14 seconds (timeouts.total)"


def test_the_idle_timeout_starts_with_the_first_event_and_excludes_the_reader_s_time() -> None:
    clock = Clock()
    commands = exchange(clock, Timeouts(first_event=5, idle=3)).commands()
    next(commands)
    assert next_of(commands, OK) == ReadBytes(5)
    assert isinstance(next_of(commands, FRAMES[0] + FRAMES[1]), Deliver)
    clock.now += 1000  # a slow reader
    assert next(commands) == ReadBytes(3)


def test_each_attempt_has_its_own_first_event_timeout() -> None:
    clock = Clock()
    retries = Retries(attempts=1, first_delay=0, after_start=True)
    seen = walk(
        exchange(clock, Timeouts(first_event=5, idle=3), retries),
        *(OK, b"".join(FRAMES[:2]), ConnectionFailed("broke", retryable=True)),
        *(OK, b": ping\n\n", ReadTimedOut("late")),
    )
    assert [command.timeout for command in seen if isinstance(command, ReadBytes)] == [5, 3, 5, 5]
    error = delivered(seen)[-2]
    assert error.message == "no event received within 5 seconds (timeouts.first_event)"


def test_a_response_that_breaks_off_is_retried_with_after_start() -> None:
    broke = ConnectionFailed("the line broke", retryable=True)
    text = b"".join(frames("openai-chat", Reply(say("Let me look."), drop())))
    seen = walk(exchange(retries=Retries(after_start=True)), OK, text, broke, OK, b"".join(FRAMES), b"")
    chunks = delivered(seen)
    assert [chunk for chunk in chunks if isinstance(chunk, Retry)] == [Retry("the line broke")]
    turn = penstock.collect(chunks)
    assert (turn.text, turn.finish_reason, len(turn.tool_calls)) == ("Let me look.", "tool_calls", 1)
    assert len([command for command in seen if isinstance(command, OpenRequest)]) == 2


def test_a_response_with_a_complete_call_is_never_retried() -> None:
    broke = ConnectionFailed("the line broke", retryable=True)
    reply = Reply(call("weather", {"city": "Rome"}, id="a"), say("And"), drop())
    for wire in ("anthropic", "openai-responses", "ollama"):
        body = b"".join(frames(wire, reply))
        eager = Exchange(
            request=HTTPRequest("http://localhost/v1", {}, b"{}"),
            new_decoding=lambda wire=wire: Decoder(wire),  # type: ignore[misc]
            timeouts=Timeouts(),
            retries=Retries(after_start=True),
            clock=Clock(),
            calendar=time.time,
        )
        seen = walk(eager, OK, body, broke)
        turn = penstock.collect(delivered(seen))
        assert (len(turn.tool_calls), turn.text, turn.finish_reason) == (1, "And", "cut")
        assert turn.error == Error("the line broke", "ConnectionFailed", retryable=True)


def test_a_failed_retry_after_the_first_event_is_an_error_in_the_stream() -> None:
    broke = ConnectionFailed("the line broke", retryable=True)
    retries = Retries(attempts=1, after_start=True)
    begun = OK, b"".join(FRAMES[:2]), broke
    for outcomes, words in (
        ((HTTPResponseHead(401, {}), b""), "HTTP 401"),
        ((OK, b""), "closed the connection without sending a response"),
    ):
        chunks = delivered(walk(exchange(retries=retries), *begun, *outcomes))
        assert [type(chunk) for chunk in chunks[-3:]] == [Retry, Error, Finish]
        assert words in chunks[-2].message
        assert chunks[-1].reason == "cut"


def test_a_retry_after_date_is_compared_with_the_calendar() -> None:
    date = format_datetime(datetime.now(UTC) + timedelta(seconds=30), usegmt=True)
    wanted = walk(exchange(), HTTPResponseHead(429, {"retry-after": date}), b"", ConnectionFailed("enough"))
    [pause] = [command for command in wanted if isinstance(command, Sleep)]
    assert 25 < pause.seconds <= 30
