"""The threads of sync code: reuse, order, and what they leave behind."""

from __future__ import annotations

import gc
import os
import threading
import time
import weakref
from collections.abc import Callable
from contextvars import ContextVar, copy_context
from functools import partial
from typing import Any

import pytest

from penstock import Agent, Model, tool
from penstock.testing import Reply, Scripted, call
from penstock.transport.threads import worker_threads
from penstock.transport.threads.watchdog import Watchdog
from penstock.transport.threads.worker_threads import IDLE_NAME, WorkerThreads, workers
from tests.scripted_runs import SOON


def started(threads: WorkerThreads, work: Callable[[], None]) -> Any:
    return threads.start(work, "penstock-work", copy_context())


def until(is_so: Callable[[], object]) -> None:
    end = time.monotonic() + SOON
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.005)


def has_idle(threads: WorkerThreads, count: int) -> Callable[[], bool]:
    return lambda: threads.idle == count


def test_a_thread_is_used_again() -> None:
    threads, used, names = WorkerThreads(), set[threading.Thread](), list[str]()

    def work() -> None:
        used.add(threading.current_thread())
        names.append(threading.current_thread().name)

    for _ in range(5):
        started(threads, work).join(SOON)
        until(has_idle(threads, 1))
    [thread] = used
    assert (names, thread.name) == (["penstock-work"] * 5, IDLE_NAME)
    threads.close()
    thread.join(SOON)
    assert not thread.is_alive()


def test_a_thread_without_work_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_threads, "IDLE_SECONDS", 0.01)
    threads, used = WorkerThreads(), list[threading.Thread]()
    started(threads, lambda: used.append(threading.current_thread())).join(SOON)
    used[0].join(SOON)
    assert not used[0].is_alive()
    assert threads.idle == 0


def test_work_that_comes_when_a_thread_stops_waiting_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    """However the two race: each piece of work is done once."""
    monkeypatch.setattr(worker_threads, "IDLE_SECONDS", 0.0005)
    threads, done = WorkerThreads(), list[int]()
    for number in range(200):
        started(threads, lambda number=number: done.append(number)).join(SOON)  # type: ignore[misc]
        time.sleep(0.0001 * (number % 10))
    assert done == list(range(200))


def test_no_more_threads_wait_than_the_cap_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_threads, "MAX_IDLE", 3)
    threads, go, used = WorkerThreads(), threading.Event(), list[threading.Thread]()

    def work() -> None:
        used.append(threading.current_thread())
        go.wait(SOON)

    many = [started(threads, work) for _ in range(8)]
    go.set()
    for one in many:
        one.join(SOON)
    until(lambda: sum(thread.is_alive() for thread in used) == 3)
    assert len(set(used)) == 8
    threads.close()
    until(lambda: not any(thread.is_alive() for thread in used))


def test_work_begins_in_order_however_late_a_thread_is() -> None:
    began, may_begin = list[str](), threading.Event()

    class Late(WorkerThreads):
        def _run(self, work: Any) -> None:
            if work._after is None:  # the first one: the system gives its thread no time yet
                may_begin.wait(SOON)
            super()._run(work)

    threads = Late()
    first = threads.start(lambda: began.append("first"), "a", copy_context())
    second = threads.start(lambda: began.append("second"), "b", copy_context(), first)
    second.join(0.05)
    assert began == []
    may_begin.set()
    second.join(SOON)
    assert began == ["first", "second"]
    threads.close()


def test_plain_tools_of_one_response_begin_in_the_order_of_their_calls() -> None:
    began = list[int]()

    @tool
    def write(line: int) -> str:
        """Write a line."""
        began.append(line)
        return "written"

    for _ in range(5):
        began.clear()
        replies = [Reply(*(call("write", {"line": line}) for line in range(20))), Reply("Done.")]
        assert Agent(Model("openai-compatible:m", via=Scripted(replies)), [write]).run("Go.").output == "Done."
        assert began == list(range(20))


def test_work_that_raises_is_reported_and_ends_its_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    errors, threads = list[Any](), WorkerThreads()
    monkeypatch.setattr(threading, "excepthook", lambda hook: errors.append(hook.exc_value))

    def work() -> None:
        raise ValueError("broken")

    started(threads, work).join(SOON)
    until(lambda: errors)
    assert str(errors[0]) == "broken"
    assert threads.idle == 0


def test_a_waiting_thread_keeps_nothing_of_its_last_work_alive() -> None:
    class Big:
        pass

    variable: ContextVar[Any] = ContextVar("variable")
    threads, big = WorkerThreads(), Big()
    reference = weakref.ref(big)

    def keep(kept: Big) -> None:
        """Have it as an argument."""

    def start(kept: Big) -> None:
        variables = copy_context()
        variables.run(variable.set, kept)
        threads.start(partial(keep, kept), "penstock-work", variables).join(SOON)

    start(big)
    until(has_idle(threads, 1))
    del big
    gc.collect()
    assert reference() is None
    threads.close()


def test_work_does_not_wait_for_itself() -> None:
    threads, mine = WorkerThreads(), list[Any]()
    begun, joined = threading.Event(), threading.Event()

    def work() -> None:
        begun.wait(SOON)
        mine[0].join(SOON)
        joined.set()

    mine.append(started(threads, work))
    began = time.monotonic()
    begun.set()
    assert joined.wait(SOON)
    assert time.monotonic() - began < SOON
    threads.close()


def test_a_thread_that_cannot_be_started_is_an_error_for_whoever_wants_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    threads = WorkerThreads()
    monkeypatch.setattr(threading.Thread, "start", refuse)
    with pytest.raises(RuntimeError, match="can't start"):
        started(threads, lambda: None)


@pytest.mark.parametrize("method", ["pop", "append", "remove"])
def test_work_can_be_started_while_its_thread_gives_or_takes_work(monkeypatch: pytest.MonkeyPatch, method: str) -> None:
    """As when the garbage collector, which may run at any moment, frees a run whose end needs a thread."""
    monkeypatch.setattr(worker_threads, "IDLE_SECONDS", 0.01)
    threads, ended = WorkerThreads(), threading.Event()

    class Collecting(list[Any]):
        is_collected = False

    def collect(idle: Collecting, *arguments: Any) -> Any:
        if not idle.is_collected:
            idle.is_collected = True
            started(threads, ended.set)
        return getattr(list, method)(idle, *arguments)

    setattr(Collecting, method, collect)
    threads._idle = Collecting()
    threading.Thread(target=lambda: [started(threads, lambda: None).join(SOON) for _ in range(2)], daemon=True).start()
    assert ended.wait(SOON)
    until(has_idle(threads, 0))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the platform has no forks")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_child_process_does_not_use_the_threads_of_its_parent() -> None:
    started(workers, lambda: None).join(SOON)
    until(lambda: workers.idle)
    if (pid := os.fork()) == 0:
        done = threading.Event()
        started(workers, done.set)
        os._exit(0 if done.wait(SOON) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


# Deadlines.


class Deadline:
    """Something that the watchdog watches, and what happens when it looks."""

    def __init__(self, seconds: float, look: Callable[[], object] = int, expire: Callable[[], object] = int) -> None:
        self._deadline = time.monotonic() + seconds
        self._look = look
        self._expire = expire
        self.expired = threading.Event()

    @property
    def deadline(self) -> float | None:
        self._look()
        return self._deadline

    @deadline.setter
    def deadline(self, value: float | None) -> None:
        raise AssertionError(value)

    def expire(self) -> None:
        self.expired.set()
        self._expire()


def test_a_watchdog_that_got_no_thread_tries_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    dog, first, second = Watchdog(), Deadline(0.01), Deadline(0.01)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        with pytest.raises(RuntimeError, match="can't start"):
            dog.watch(first)
    assert dog.count == 0
    dog.watch(second)
    assert second.expired.wait(SOON)


def test_deadlines_hold_after_one_whose_end_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise ValueError("broken")

    errors, dog = list[Any](), Watchdog()
    monkeypatch.setattr(threading, "excepthook", lambda hook: errors.append(hook.exc_value))
    first, second = Deadline(0.01, expire=fail), Deadline(0.05)
    dog.watch(first)
    dog.watch(second)
    assert second.expired.wait(SOON)
    assert [str(error) for error in errors] == ["broken"]


def test_deadlines_hold_if_a_connection_is_closed_while_the_watchdog_looks() -> None:
    """As when the garbage collector, which may run at any moment, frees a stream that was not closed."""
    dog = Watchdog()
    freed = [Deadline(3600) for _ in range(50)]

    def free() -> None:
        if freed and threading.current_thread().name == "penstock-watchdog":
            dog.forget(freed.pop())

    watched = [Deadline(0.05, free) for _ in range(50)]
    for one in [*watched, *freed]:
        dog.watch(one)
    assert all(one.expired.wait(SOON) for one in watched)
    until(lambda: not freed)
    for _ in range(2):  # and what is watched later, too
        late = Deadline(0.01)
        dog.watch(late)
        assert late.expired.wait(SOON)


def test_what_is_done_in_time_does_not_wake_the_watchdog(monkeypatch: pytest.MonkeyPatch) -> None:
    checks, check = list[float](), Watchdog._check

    def counted(dog: Watchdog, now: float) -> Any:
        checks.append(now)
        return check(dog, now)

    class Waiting:
        deadline: float | None = time.monotonic() + 3600

        def expire(self) -> None:
            raise AssertionError

    monkeypatch.setattr(Watchdog, "_check", counted)
    dog = Watchdog()
    dog.watch(Waiting())
    until(lambda: dog.next_check != float("inf"))
    for _ in range(50):
        one = Waiting()
        dog.watch(one)
        dog.forget(one)
        time.sleep(0.0005)
    assert len(checks) == 1
    dog.wake()
