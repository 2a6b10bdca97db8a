"""A real MCP server for tests: `python -m tests.mcp_server stdio`, or `http PORT`. Its tools do what servers may do."""

import asyncio
import base64
import os
import sys
from typing import Annotated

from mcp.server.elicitation import AcceptedElicitation, ElicitationResult
from mcp.server.mcpserver import Context, Elicit, Image, MCPServer, Resolve
from mcp_types import (
    AudioContent,
    BlobResourceContents,
    CallToolResult,
    EmbeddedResource,
    ResourceLink,
    TextContent,
    TextResourceContents,
    ToolAnnotations,
)
from pydantic import BaseModel

PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
server = MCPServer("bench", instructions="Be careful.")


class Seat(BaseModel):
    """What a person is asked."""

    seat: int


class Sum(BaseModel):
    """Structured content."""

    sum: int


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
def add(a: int, b: int) -> Sum:
    """Add two numbers."""
    return Sum(sum=a + b)


@server.tool(annotations=ToolAnnotations(destructive_hint=True))
def wipe() -> str:
    """Delete everything."""
    return "wiped"


@server.tool(annotations=ToolAnnotations(idempotent_hint=True))
def put(context: str) -> str:
    """Put something; its argument has the name of a parameter that clients may use themselves."""
    return f"put {context}"


@server.tool()
def media() -> CallToolResult:
    """All kinds of content."""
    blob = base64.b64encode(b"%PDF-1.4").decode()
    pixel = base64.b64encode(PIXEL).decode()
    return CallToolResult(
        content=[
            TextContent(text="Look:"),
            Image(data=PIXEL, format="png").to_image_content(),
            AudioContent(data=blob, mime_type="audio/wav"),
            EmbeddedResource(resource=TextResourceContents(uri="file:///a.txt", text="hello")),
            EmbeddedResource(
                resource=BlobResourceContents(uri="file:///b.pdf", mime_type="application/pdf", blob=blob)
            ),
            EmbeddedResource(resource=BlobResourceContents(uri="file:///c.png", mime_type="image/png", blob=pixel)),
            ResourceLink(name="notes", uri="file:///notes.md", mime_type="text/markdown", description="Notes"),
        ]
    )


@server.tool()
async def count(to: int, context: Context) -> str:
    """Report progress."""
    for number in range(to):
        await context.report_progress(number + 1, to, f"at {number + 1}")
    return "counted"


@server.tool()
async def wait(path: str) -> str:
    """Wait until it is cancelled, and write that to a file."""
    try:
        with open(path, "a", encoding="utf-8") as file:  # noqa: ASYNC230, PTH123
            file.write("started\n")
        await asyncio.sleep(1000)
    except BaseException as error:
        with open(path, "a", encoding="utf-8") as file:  # noqa: ASYNC230, PTH123
            file.write(f"cancelled {type(error).__name__}\n")
        raise
    return "waited"


async def ask_for_seat() -> Elicit[Seat]:
    return Elicit("Which seat?", Seat)


@server.tool()
async def book(answer: Annotated[ElicitationResult[Seat], Resolve(ask_for_seat)]) -> str:
    """Ask the person."""
    return f"{answer.action} {answer.data.seat}" if isinstance(answer, AcceptedElicitation) else answer.action


@server.tool()
def die() -> str:
    """End the server."""
    os._exit(3)


@server.tool()
def where() -> str:
    """The process of the server."""
    return str(os.getpid())


@server.tool()
def whoami(context: Context) -> str:
    """What the client says about itself."""
    return (context.headers or {}).get("authorization", "nobody")


@server.tool()
def big(megabytes: int) -> str:
    """A large result."""
    return "x" * (megabytes * 1_000_000)


def fail() -> str:
    """Raise."""
    raise ValueError("no luck")


server.add_tool(fail)


def changing_server() -> MCPServer:
    """A server with a tool that renames another."""
    changing = MCPServer("changing")
    changing.add_tool(lambda: "I am old", name="old", description="The old name.")

    @changing.tool()
    async def rename(context: Context) -> str:
        """Rename the tool `old` to `new`."""
        changing.remove_tool("old")
        changing.add_tool(lambda: "I am new", name="new", description="The new name.")
        await context.notify_tools_changed()
        return "renamed"

    return changing


if __name__ == "__main__":
    if sys.argv[1] == "stdio":
        server.run("stdio")
    else:
        server.run("streamable-http", port=int(sys.argv[2]))
