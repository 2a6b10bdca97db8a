"""The examples run, each in its own process, and print what they should."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2
import pytest

from penstock.testing import Loopback, Reply, call, demo, drop, wait
from tests.budget import sample

FOLDER = Path(__file__).parents[2] / "examples"
EXAMPLES = sorted(FOLDER.glob("*.py"))
PATIENCE = 60  # seconds until a test gives up; it waits for what it expects, not for the time
BARE = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ} | {"PYTHONUTF8": "1"}
"""The environment of an example: without the keys of the person who runs the tests."""
ADOPT = "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execv(sys.argv[1], sys.argv[1:])"
"""Makes a terminal the controlling terminal of the process, then runs the command in its arguments."""
NAMED = "anthropic:claude-sonnet-5"
LOOKED = [
    "Let me ask weather.",
    "→ weather {'city': 'Rome'}",
    "→ weather {'city': 'Oslo'}",
    "Here is what I found: weather says sunny in Rome; weather says sunny in Oslo.",
]

each_example = pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)


def run(example: Path, *arguments: str, typed: str = "", **env: str) -> list[str]:
    """The lines that an example prints; it must succeed and print no errors."""
    command = [sys.executable, str(example), *arguments]
    done = subprocess.run(
        command, input=typed, capture_output=True, text=True, encoding="utf-8", env=BARE | env, timeout=PATIENCE,
        check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return done.stdout.splitlines()


# -- what each example shows -------------------------------------------------------------------------------------------

SHOWN: dict[str, Callable[[Path, Path], None]] = {}


def shows(check: Callable[[Path, Path], None]) -> Callable[[Path, Path], None]:
    SHOWN[check.__name__] = check
    return check


@each_example
def test_an_example_shows_what_it_says(example: Path, tmp_path: Path) -> None:
    SHOWN[example.stem](example, tmp_path)


@shows
def chat(example: Path, folder: Path) -> None:
    output = "\n".join(run(example, typed="first\nsecond\n"))
    assert output.index("You said “first”") < output.index("You said “second”")
    assert output.endswith("4 messages, 0 problems")


@shows
def parallel_tools(example: Path, folder: Path) -> None:
    lines = run(example)
    timed = [line for line in lines if re.match(r" *\d+\.\d\d s  ", line)]
    marks = "".join(line.split("s  ")[1][0] for line in timed).replace(" ", "")
    assert marks == "→→→←←←", "each began before the first ended"
    assert all(line.endswith("while the model is still writing") for line in timed if "→" in line)
    assert "sunny, 24 °C" in lines[-3]
    ended = re.fullmatch(r"The tools ran for (\S+) s in total, the run took (\S+) s\.", lines[-1])
    assert ended
    assert float(ended[1]) > float(ended[2]), "they did not run in parallel"


@shows
def in_text(example: Path, folder: Path) -> None:
    lines = run(example)
    assert "→ weather {'city': 'Rome'}, found as text:anthropic_xml" in lines
    assert "← weather: snow, -2 °C" in lines
    assert (lines[0], lines[-1]) == ("Let me look.", "Rome is the warmer one.")
    assert not any("<" in line for line in lines), "a piece of a tag was shown"


@shows
def growing_argument(example: Path, folder: Path) -> None:
    poem = ["Roses are “red”,", "\tviolets are blue;", "this line was a \\n,", "and an escape, too."]
    assert run(example) == [
        "Here it comes.", "── write_file ──", *poem, "── 76 characters written ──", "Done.",
    ]  # fmt: skip


@shows
def approval(example: Path, folder: Path) -> None:
    store = folder / "store.json"
    paid, declined = (
        "500 euros are on their way to Ada",
        "The user declined this call: the owner of the account said no",
    )
    assert any(paid in line for line in run(example, typed="yes\n", STORE=str(store)))
    assert not store.exists()
    for answer, outcome in (("yes", paid), ("no", declined)):
        first = run(example, typed="later\n", STORE=str(store))
        assert first[-1] == f"stored in {store}"
        assert "← balance: 1,200 euros" in "\n".join(first), "a call that needs no approval did not run"
        then = "\n".join(run(example, typed=f"{answer}\n", STORE=str(store)))
        assert f"← transfer: {outcome}" in then
        assert "Let me ask" not in then, "the request was repeated"
        assert "← balance" not in then, "a tool ran twice"
        assert "Here is what I found: balance says 1,200 euros; transfer says" in then
        assert not store.exists()


@shows
def switch_provider(example: Path, folder: Path) -> None:
    cities = {"anthropic": "Rome", "gemini": "Oslo", "openai-responses": "Quito"}
    answers = [
        f"sim:demo ({wire}): Here is what I found: weather says sunny in {city}." for wire, city in cities.items()
    ]
    assert run(example) == [*answers, "", "12 messages, 0 problems"]


@shows
def keep_openai(example: Path, folder: Path) -> None:
    assert run(example) == LOOKED


@shows
def keep_anthropic(example: Path, folder: Path) -> None:
    assert run(example) == LOOKED


@shows
def keep_google(example: Path, folder: Path) -> None:
    assert run(example) == LOOKED


@shows
def fastapi_app(example: Path, folder: Path) -> None:
    with served(example, LOG=str(folder / "runs.db")) as (client, _):
        assert "Penstock" in client.get("/agents/").text
        events = answer(client, "How is the weather in Rome and in Oslo?")
        assert [event["arguments"]["city"] for event in events if event["type"] == "tool_start"] == ["Rome", "Oslo"]
        assert (events[-1]["type"], events[-1]["output"]) == ("done", LOOKED[-1])
        assert "4711" not in json.dumps(events), "the private data of a tool stays on the server"
        assert client.get("/statistics").json() == {"runs": 1, "over": 1}


def answer(client: httpx2.Client, prompt: str) -> list[dict]:
    """The events of a run of the served agent."""
    run = client.post("/agents/runs", json={"prompt": prompt}).json()
    with client.stream("GET", f"/agents{run['events']}") as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        return list(events_of(response))


# -- and with a real provider ------------------------------------------------------------------------------------------


@pytest.fixture
def provider() -> Iterator[Loopback]:
    with Loopback(demo, strict=True) as server:
        yield server


def keys(server: Loopback) -> dict[str, str]:
    """An environment with keys for the providers, which this server plays."""
    return {
        "OPENAI_API_KEY": "a-key", "OPENAI_BASE_URL": server.base_url("openai-chat"),
        "ANTHROPIC_API_KEY": "a-key", "ANTHROPIC_BASE_URL": server.base_url("anthropic"),
        "GEMINI_API_KEY": "a-key", "GOOGLE_GEMINI_BASE_URL": server.base_url("gemini"),
        "MODEL": NAMED,
    }  # fmt: skip


@pytest.mark.parametrize("example", sample(EXAMPLES, few=5), ids=lambda path: path.stem)
def test_a_real_provider_can_be_named(example: Path, provider: Loopback, tmp_path: Path) -> None:
    env = keys(provider)
    if example.stem == "fastapi_app":
        with served(example, **env) as (client, _):
            assert answer(client, "How is the weather in Rome?")[-1]["output"].startswith("Here is what I found")
    else:
        run(example, NAMED, typed="yes\n", STORE=str(tmp_path / "store.json"), **env)
    wire = {"keep_openai": "openai-chat", "keep_google": "gemini"}.get(example.stem, "anthropic")
    assert {request.wire for request in provider.requests} == {wire}


def test_the_history_goes_from_provider_to_provider(provider: Loopback) -> None:
    names = ["anthropic:claude-sonnet-5", "google:gemini-3.8-flash", "openai:gpt-5.5"]
    assert run(FOLDER / "switch_provider.py", *names, **keys(provider))[-1] == "12 messages, 0 problems"
    wires = [request.wire for request in provider.requests]
    assert wires == ["anthropic", "anthropic", "gemini", "gemini", "openai-responses", "openai-responses"]
    assert "sunny in Rome" in json.dumps(dict(provider.requests[-1].body)), (
        "the last request has the history of the first"
    )


# -- what only a slow provider shows -----------------------------------------------------------------------------------


def test_ctrl_c_stops_an_answer_and_the_conversation_continues() -> None:
    slow = Loopback([Reply("One moment, ", wait(PATIENCE), "please."), "Still here."], strict=True)
    with slow as server, terminal(FOLDER / "chat.py", NAMED, **keys(server)) as screen:
        screen.wait_for("› ")
        screen.type("first\n")
        screen.wait_for("One moment,")
        screen.type("\x03")  # Ctrl-C
        screen.wait_for("[stopped]")
        screen.wait_for("› ")
        screen.type("second\n")
        screen.wait_for("Still here.")
        screen.wait_for("› ")
        screen.type("\x04")  # Ctrl-D
        screen.wait_for("4 messages, 0 problems")
        assert screen.child.wait(PATIENCE) == 0
    messages = json.dumps(server.requests[1].body["messages"])
    assert re.search(r"first.*One moment,.*second", messages)


def test_a_growing_argument_is_shown_before_its_call_is_complete() -> None:
    script = Reply(call("write_file", '{"path": "poem.txt", "content": "Roses are re'), wait(PATIENCE), drop())
    with Loopback(script) as server, terminal(FOLDER / "growing_argument.py", NAMED, **keys(server)) as screen:
        assert "poem.txt" not in screen.wait_for("Roses are re")


def test_a_client_that_disconnects_comes_back_to_the_same_run() -> None:
    script = [Reply("One moment.", call("weather", {"city": "Rome"})), Reply("Sunny.")]
    with Loopback(script) as server, served(FOLDER / "fastapi_app.py", **keys(server)) as (client, _):
        run = client.post("/agents/runs", json={"prompt": "Rome?"}).json()
        with client.stream("GET", f"/agents{run['events']}") as response:
            assert any(event["type"] == "tool_start" for event in events_of(response))
        with client.stream("GET", f"/agents{run['events']}") as response:
            assert [*events_of(response)][-1]["output"] == "Sunny."


# -- docstrings and the table ------------------------------------------------------------------------------------------


@each_example
def test_an_example_says_how_to_run_it(example: Path) -> None:
    docstring = example.read_text(encoding="utf-8").split('"""')[1]
    assert f"\n    python examples/{example.name}\n" in docstring


def test_the_table_has_them_all() -> None:
    table = (FOLDER / "README.md").read_text(encoding="utf-8")
    assert sorted(re.findall(r"^\| \[(\S+)\]\(\1\)", table, re.MULTILINE)) == [path.name for path in EXAMPLES]


# -- a terminal, and a server ------------------------------------------------------------------------------------------


class Output:
    """The output of a process, as it arrives."""

    def __init__(self, child: subprocess.Popen[bytes], source: int) -> None:
        self.child = child
        self._source = source
        self._unseen = b""

    def wait_for(self, what: str) -> str:
        """Wait for a text, and return the output up to and including it, since the last call."""
        deadline = time.monotonic() + PATIENCE
        while what.encode() not in self._unseen:
            ready, _, _ = select.select([self._source], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, f"{what!r} did not arrive, only {self._unseen!r}"
            self._unseen += self._read()
        before, match, self._unseen = self._unseen.partition(what.encode())
        return (before + match).decode()

    def type(self, keys: str) -> None:
        """Write to it, if it is a terminal."""
        os.write(self._source, keys.encode())

    def _read(self) -> bytes:
        try:
            new = os.read(self._source, 65536)
        except OSError:  # a terminal whose other end is closed
            new = b""
        assert new, f"it has ended, with {self._unseen!r}"
        return new


@contextmanager
def terminal(example: Path, *arguments: str, **env: str) -> Generator[Output]:
    """An example in its own terminal, so that Ctrl-C reaches it."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-c", ADOPT, sys.executable, str(example), *arguments]
    child = subprocess.Popen(
        command, stdin=theirs, stdout=theirs, stderr=theirs, env=BARE | env, start_new_session=True
    )
    os.close(theirs)
    try:
        yield Output(child, ours)
    finally:
        child.kill()
        child.wait()
        os.close(ours)


@contextmanager
def served(example: Path, **env: str) -> Generator[tuple[httpx2.Client, Output]]:
    """An example that is a server: a client for it, and its output."""
    command, settings = [sys.executable, str(example)], BARE | {"PORT": "0"} | env
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=settings)
    assert child.stdout
    try:
        output = Output(child, child.stdout.fileno())
        output.wait_for("running on ")
        with httpx2.Client(base_url=output.wait_for(" ").strip(), trust_env=False, timeout=PATIENCE) as client:
            yield client, output
        child.send_signal(signal.SIGINT)
        output.wait_for("Finished server process")
    finally:
        child.kill()
        child.communicate()


def events_of(response: httpx2.Response) -> Iterator[dict]:
    return (json.loads(line.removeprefix("data: ")) for line in response.iter_lines() if line.startswith("data: "))
