"""A self-contained page: one HTML document with its scripts and styles, and a policy (CSP) that allows nothing else."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable
from importlib.resources.abc import Traversable

from penstock.asgi.request import HTTPRequest, Send
from penstock.asgi.response import respond

_STYLE = re.compile(r'<link rel="stylesheet" href="([\w.-]+)">')
_SCRIPT = re.compile(r'<script src="([\w.-]+)"></script>')
_INLINE = re.compile(r"<(style|script)>(.*?)</\1>", re.DOTALL)


class Page:
    """The page `index.html` of a folder, with its style sheets and scripts inlined.

    Its policy (CSP) lets the page run these and no others, and talk to its own server only: no fonts, pictures or
    scripts from anywhere, no frame around it, and no markup from a model that would run.
    """

    def __init__(self, folder: Traversable, shared: Traversable | None = None) -> None:
        """Files that the folder does not have are those of the `shared` one."""
        folders = [folder, shared or folder]
        html = (folder / "index.html").read_text(encoding="utf-8")
        html = _STYLE.sub(lambda match: f"<style>{_text(folders, match[1])}</style>", html)
        html = _SCRIPT.sub(lambda match: f"<script>{_text(folders, match[1])}</script>", html)
        self.body = html.encode()
        self.policy = _policy(html)

    async def respond(self, request: HTTPRequest, send: Send) -> None:
        """Send the page."""
        headers = {"content-security-policy": self.policy, "referrer-policy": "no-referrer"}
        await respond(request, send, 200, self.body, "text/html; charset=utf-8", headers)


def _text(folders: Iterable[Traversable], name: str) -> str:
    file = next(path for folder in folders if (path := folder / name).is_file())
    text = file.read_text(encoding="utf-8")
    if "</script" in text or "</style" in text:
        raise ValueError(f"{name} would end the element that it is put into")
    return text


def _policy(html: str) -> str:
    styles = [text for kind, text in _INLINE.findall(html) if kind == "style"]
    scripts = [text for kind, text in _INLINE.findall(html) if kind == "script"]
    rules = {
        "default-src": "'none'",
        "style-src": _hashes(styles),
        "script-src": _hashes(scripts),
        "connect-src": "'self'",
        "img-src": "data:",
        "base-uri": "'none'",
        "form-action": "'none'",
        "frame-ancestors": "'none'",
    }
    return "; ".join(f"{name} {value}" for name, value in rules.items())


def _hashes(texts: Iterable[str]) -> str:
    digests = (base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in texts)
    return " ".join(f"'sha256-{digest}'" for digest in digests) or "'none'"
