"""Sessions of browsers that are ended before their time."""

from __future__ import annotations

import asyncio

import pytest

from penstock.asgi import access as module
from penstock.asgi.access import Access
from penstock.asgi.limits import ServerLimits
from penstock.asgi.request import HTTPRequest, Message, RejectedRequest


def request(cookie: str = "") -> HTTPRequest:
    async def receive() -> Message:
        raise AssertionError

    headers = [(b"host", b"localhost"), (b"cookie", cookie.encode())]
    scope = {"type": "http", "method": "GET", "path": "/", "headers": headers, "client": ("10.0.0.1", 1)}
    return HTTPRequest(scope, receive, ServerLimits(), "id")


def test_ended_sessions_are_remembered_up_to_a_cap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_ENDED", 3)
    access = Access(token="x" * 20)
    cookies = [access.session_cookie(request()).partition(";")[0] for _ in range(5)]
    assert len(set(cookies)) == 5
    for cookie in cookies:
        assert access._has_session(request(cookie))
        assert "Max-Age=0" in access.end_session(request(cookie))
    assert [access._has_session(request(cookie)) for cookie in cookies] == [True, True, False, False, False]


@pytest.mark.parametrize("cookie", ["", "penstock_session=", "penstock_session=a.b.c", "penstock_session=.."])
def test_the_session_of_a_cookie_that_is_not_ours_cannot_be_ended(cookie: str) -> None:
    access = Access(token="x" * 20)
    access.end_session(request(cookie))
    assert access.ended_sessions == {}


@pytest.mark.parametrize(
    ("size", "is_refused"), [(module.MAX_TENANT, False), (module.MAX_TENANT + 1, True), (10**7, True)]
)
def test_a_tenant_with_a_long_name_is_refused(size: int, is_refused: bool) -> None:
    access = Access(auth=lambda scope: "t" * size, hosts=("localhost",))
    if is_refused:
        with pytest.raises(RejectedRequest) as refused:
            asyncio.run(access.tenant_of(request()))
        assert (refused.value.status, refused.value.code) == (403, "tenant_too_long")
        assert len(refused.value.message) < 100
    else:
        assert asyncio.run(access.tenant_of(request())) == "t" * size
