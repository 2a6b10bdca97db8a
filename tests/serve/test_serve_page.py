"""The page in the box: one response with a policy that lets it talk to its own server only."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import re
from importlib.resources import files
from pathlib import Path
from typing import get_args

import pytest

import penstock.serve
from penstock import Agent, Model
from penstock.asgi.page import Page
from penstock.run.events import ToolEnding
from penstock.testing import Scripted
from tests.asgi_client import Browser, Reply, serving

FOLDER = files("penstock.serve") / "page"


@pytest.mark.parametrize("ending", get_args(ToolEnding))
def test_the_page_has_words_for_every_ending_of_a_call(ending: str) -> None:
    states = re.search(r"CALL_STATES = \{(.*?)\};", (FOLDER / "call.js").read_text(), re.DOTALL)
    assert states is not None
    assert re.search(rf"\b{ending}: \"", states.group(1))


def served(**options: str) -> penstock.serve.ServeApp:
    return penstock.serve.app(Agent(Model("openai:gpt-5", via=Scripted(["Hi."])), name="support"), **options)  # type: ignore[arg-type]


def page_of(**options: str) -> Reply:
    async def get() -> Reply:
        async with serving(served(**options)) as browser:
            return await browser.get("/")

    return asyncio.run(get())


def test_the_policy_allows_the_scripts_of_the_page_and_no_others() -> None:
    reply = page_of()
    assert (reply.status, reply.headers["content-type"]) == (200, "text/html; charset=utf-8")
    policy = dict(rule.split(" ", 1) for rule in reply.headers["content-security-policy"].split("; "))
    assert policy["default-src"] == policy["base-uri"] == policy["form-action"] == policy["frame-ancestors"] == "'none'"
    assert (policy["connect-src"], policy["img-src"]) == ("'self'", "data:")
    for kind in ("script", "style"):
        texts = re.findall(f"<{kind}>(.*?)</{kind}>", reply.body.decode(), re.DOTALL)
        digests = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in texts]
        assert policy[f"{kind}-src"] == " ".join(f"'sha256-{digest}'" for digest in digests)


def test_the_page_is_whole_and_names_no_other_address() -> None:
    html = page_of().body.decode()
    assert re.findall(r"https?:|//[a-z]+\.|@import|url\(", html) == []
    assert re.findall(r'(?:src|href)="([^"]*)"', html) == ["data:,", "#prompt"]
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function", html)


def test_every_file_of_the_page_is_in_it() -> None:
    html = page_of().body.decode()
    for path in FOLDER.iterdir():
        assert path.name == "index.html" or path.read_text(encoding="utf-8") in html


def test_the_page_comes_before_a_token_but_not_under_another_name() -> None:
    assert page_of(token="a-long-secret-token").status == 200

    async def test() -> None:
        async with serving(served()) as browser:
            assert (await browser.request("GET", "/", headers={"host": "evil.example"})).status == 421
            head = await browser.request("HEAD", "/")
            assert (head.status, head.body) == (200, b"")
            assert (await browser.post("/", {})).status == 405

    asyncio.run(test())


def test_a_file_that_would_end_its_element_is_refused(tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text('<script src="a.js"></script>')
    (tmp_path / "a.js").write_text("x = '</script>'")
    with pytest.raises(ValueError, match=r"a\.js"):
        Page(tmp_path)


def test_events_have_their_times_and_a_run_the_message_that_it_answers() -> None:
    async def test(browser: Browser) -> None:
        run_id = (await browser.post("/runs", {"prompt": "How are you?"})).json["id"]
        frames = (await browser.get(f"/runs/{run_id}/events")).frames
        times = [event["at"] for _, event in frames]
        assert times == sorted(times)
        assert frames[0][1]["prompt"] == "How are you?"

    async def run() -> None:
        async with serving(served()) as browser:
            await test(browser)

    asyncio.run(run())
