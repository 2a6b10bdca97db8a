"""Forks: a child process and its parent never share a connection, a thread or a lock. Each test is a real process."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from penstock.testing import Hang, Loopback, ReceivedRequest, Reply, Step, always, say
from tests.asking import FOREVER, LONG, sync_and_async, within

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="the platform has no forks")

PRELUDE = """
import asyncio, multiprocessing, os, sys, threading, time
from penstock import Model, PenstockError, Retries, Timeouts
url, mode = sys.argv[1:3]
model = Model("openai-compatible:m", url, "key", retries=Retries(attempts=0), timeouts=Timeouts(connect=30))

def ask(prompt, model=model):
    return (asyncio.run(model.acomplete(prompt)) if mode == "async" else model.complete(prompt)).text

def check(who, times=3):
    for at in range(times):
        assert ask(f"{who} {at}") == f"reply to {who} {at}", who

def ended_well(pid):
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
"""


def run(code: str, server: Loopback, mode: str) -> str:
    """Run a program against the server; it must end well and print nothing to standard error."""
    command = [sys.executable, "-W", "default::ResourceWarning"]
    command += ["-W", "ignore:This process:DeprecationWarning"]  # since 3.12, for the forks of these tests themselves
    command += ["-c", PRELUDE + code]
    arguments = [server.base_url("openai-chat"), mode]
    done = subprocess.run([*command, *arguments], capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return done.stdout


def echo(request: ReceivedRequest) -> str:
    return f"reply to {request.prompt}"


@sync_and_async
def test_a_parent_and_its_children_get_their_own_answers(mode: str) -> None:
    """As with gunicorn and its option preload: the model is used before the workers are forked."""
    code = """
ask("warm")
children = []
for number in range(3):
    pid = os.fork()
    if pid == 0:
        check(f"child {number}")
        sys.exit()
    children.append(pid)
check("parent")
assert all([ended_well(pid) for pid in children])
"""
    with Loopback(echo) as server:
        run(code, server, mode)


@sync_and_async
def test_processes_of_multiprocessing_get_their_own_answers(mode: str) -> None:
    code = """
ask("warm")
context = multiprocessing.get_context("fork")
processes = [context.Process(target=check, args=(f"process {number}",)) for number in range(3)]
for process in processes:
    process.start()
check("parent")
for process in processes:
    process.join()
assert [process.exitcode for process in processes] == [0, 0, 0]
"""
    with Loopback(echo) as server:
        run(code, server, mode)


def test_a_fork_within_a_coroutine_leaves_the_connections_of_its_loop_alone() -> None:
    code = """
async def main():
    await model.acomplete("warm")
    async with model.astream("open") as stream:
        process = multiprocessing.get_context("fork").Process(target=check, args=("child",))
        process.start()
        text = "".join([chunk.text async for chunk in stream if chunk.type == "text"])
        process.join()
    assert text == "reply to open" and process.exitcode == 0
    assert (await model.acomplete("after")).text == "reply to after"

asyncio.run(main())
"""
    with Loopback(echo) as server:
        run(code, server, "async")


def test_a_child_that_cancels_an_inherited_stream_does_not_break_that_of_its_parent() -> None:
    """A child also does this without being told to: a run that is freed is cancelled."""
    code = """
with model.stream("Hi.") as stream:
    chunks = iter(stream)
    next(chunks)
    pid = os.fork()
    if pid == 0:
        stream.cancel()
        stream.close()
        os._exit(0)
    assert ended_well(pid)
    print("".join(chunk.text for chunk in chunks if chunk.type == "text"))
"""
    with Loopback(Reply(say("one "), say("two "), say("three"))) as server:
        assert run(code, server, "sync").strip().endswith("three")


@pytest.mark.parametrize("step", [Hang(), Reply(say("Hi."), FOREVER)], ids=["head", "body"])
def test_timeouts_hold_in_a_child(step: Step) -> None:
    code = """
timeouts = Timeouts(first_event=0.5, idle=0.5)
slow = Model("openai-compatible:m", url, "key", retries=Retries(attempts=0), timeouts=timeouts)

def time_out():
    try:
        turn = slow.complete("Hi.")
        assert "0.5 seconds" in turn.error.message, turn
    except PenstockError as error:
        assert "0.5 seconds" in str(error), error

time_out()  # imports everything: a child cannot import what another thread was importing
parent = threading.Thread(target=time_out)  # so that the thread of the watchdog runs in the parent
parent.start()
while not any(thread.name == "penstock-watchdog" for thread in threading.enumerate()) and parent.is_alive():
    time.sleep(0.01)
pid = os.fork()
if pid == 0:
    time_out()
    os._exit(0)
assert ended_well(pid)
parent.join()
"""
    with Loopback(always(step)) as server, within(LONG * 4):
        run(code, server, "sync")


def test_a_fork_while_other_threads_send_requests_does_not_block_the_child() -> None:
    code = """
ask("warm")  # imports everything: a child cannot import what another thread was importing
is_over = threading.Event()

def work(number):
    at = 0
    while not is_over.is_set():
        at += 1
        assert ask(f"thread {number} {at}") == f"reply to thread {number} {at}"

threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
for thread in threads:
    thread.start()
for number in range(8):
    pid = os.fork()
    if pid == 0:
        check(f"child {number}", 2)
        os._exit(0)
    assert ended_well(pid)
is_over.set()
for thread in threads:
    thread.join()
"""
    with Loopback(echo) as server:
        run(code, server, "sync")


def test_async_tools_of_plain_runs_work_in_a_child() -> None:
    code = """
from penstock import Agent, tool
from penstock.testing import Reply, Scripted, call

@tool
async def look() -> str:
    "Look."
    await asyncio.sleep(0)
    return "seen"

def run():
    script = Scripted([Reply(call("look")), Reply("Done.")])
    assert Agent(Model("openai:gpt", via=script), [look]).run("Hi.").output == "Done."

run()
pid = os.fork()
if pid == 0:
    run()
    os._exit(0)
assert ended_well(pid)
run()
"""
    with Loopback(echo) as server:
        run(code, server, "sync")


@pytest.mark.parametrize("log", ["None", "penstock.log.memory()"])
def test_a_child_that_leaves_an_inherited_run_does_not_wait_for_threads_of_its_parent(log: str) -> None:
    """A thread of the parent may have held the lock of the run when it was forked."""
    code = f"""
import signal, penstock
from penstock import Agent, tool
from penstock.testing import Reply, Scripted, call

@tool(read_only=True)
def look() -> str:
    "Look."
    return "seen"

agent = Agent(Model("openai:gpt", via=Scripted([Reply(call("look")), Reply("Done.")])), [look], name="desk")
has_lock, may_go_on = threading.Event(), threading.Event()

def hold(lock):
    with lock:
        has_lock.set()
        may_go_on.wait(30)

with agent.stream("Hi.", log={log}) as run:
    events = iter(run)
    next(events)
    thread = threading.Thread(target=hold, args=(getattr(run._driver, "owner", run._driver)._driven.outbox._lock,))
    thread.start()
    assert has_lock.wait(30)
    pid = os.fork()
    if pid == 0:
        signal.alarm(20)
        run.cancel()
        sys.exit()
    assert ended_well(pid)
    may_go_on.set()
    thread.join()
    list(events)
assert run.output == "Done.", run.output
"""
    with Loopback(echo) as server:
        run(code, server, "sync")


def test_a_child_that_reads_an_inherited_run_gets_an_error() -> None:
    code = """
import signal, penstock
from penstock import Agent
from penstock.testing import Scripted

with Agent(Model("openai:gpt", via=Scripted(["Done."]))).stream("Hi.") as run:
    events = iter(run)
    next(events)
    pid = os.fork()
    if pid == 0:
        signal.alarm(20)
        try:
            list(events)
        except penstock.UsageError as error:
            assert "parent process" in str(error)
            os._exit(0)
    assert ended_well(pid)
    list(events)
assert run.output == "Done."
"""
    with Loopback(echo) as server:
        run(code, server, "sync")
