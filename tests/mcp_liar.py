"""An MCP server that misbehaves, in plain Python, so that it starts at once: `python tests/mcp_liar.py [endless]`.

With `tools JSON` it has these tools and answers their calls with the lines that they are called with; `list LINE` is
how it answers the request for its tools.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

OBJECT = {"type": "object"}
TOOLS: list[dict[str, Any]] = [
    {"name": "fine", "inputSchema": OBJECT},
    {"name": "not an object", "inputSchema": {"type": "array"}},
    {"name": "strict", "inputSchema": {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}},
    {"name": "a b", "description": "d" * 100_000, "inputSchema": OBJECT},
    {"name": "a_b", "inputSchema": OBJECT},
    {
        "name": "liar",
        "inputSchema": OBJECT,
        "outputSchema": {"type": "object", "properties": {"n": {"type": "integer"}}},
    },
    *(
        {"name": name, "inputSchema": OBJECT}
        for name in ("flood", "huge", "nameless", "garbage", "odd", "old", "rename", "where", "env", "die")
    ),
]


def send(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(message, separators=(",", ":")) + "\n")
    sys.stdout.flush()


def result(id: Any, **fields: Any) -> None:
    send({"jsonrpc": "2.0", "id": id, "result": fields})


def text(value: str) -> list[dict[str, Any]]:
    return [{"type": "text", "text": value}]


def token_of(params: dict[str, Any]) -> str:
    return json.dumps((params.get("_meta") or {}).get("progressToken"))


def print_raw(id: Any, params: dict[str, Any]) -> None:
    """Print the lines of a call, all but the last one several times; $ID is that of the request, $TOKEN that of its
    progress, and $PARTS many parts of a result."""
    *first, last = params["arguments"]["lines"]
    parts = ",".join(['{"type":"text","text":"x"}'] * 100_000) if "$PARTS" in last else ""
    for line in [*first * params["arguments"]["times"], last]:
        shown = line.replace("$ID", json.dumps(id)).replace("$TOKEN", token_of(params)).replace("$PARTS", parts)
        sys.stdout.write(shown + "\n")
    sys.stdout.flush()


def call(id: Any, name: str, params: dict[str, Any]) -> None:
    match name:
        case "flood":
            token = params["_meta"]["progressToken"]
            for number in range(params["arguments"]["reports"]):
                note = {"progressToken": token, "progress": number, "message": "m" * 100}
                send({"jsonrpc": "2.0", "method": "notifications/progress", "params": note})
            result(id, content=text("flooded"))
        case "huge":  # with its id at the end, as the SDK for TypeScript writes it
            sys.stdout.write('{"result":{"content":[{"type":"text","text":"')
            for _ in range(params["arguments"]["megabytes"]):
                sys.stdout.write("x" * 1_000_000)
            sys.stdout.write('"}]},"jsonrpc":"2.0","id":' + json.dumps(id) + "}\n")
            sys.stdout.flush()
        case "nameless":  # its id is where nobody looks for it
            padding = "x" * 2_000_000
            send({"a": padding, "jsonrpc": "2.0", "id": id, "z": padding, "result": {"content": text("")}})
        case "garbage":
            sys.stdout.write("Listening …\n{\n\n")
            result(id, content=text("after garbage"))
        case "odd":
            result(id, content=[{"type": "hologram", "data": 1}])
        case "liar":
            result(id, content=text("ran"), structuredContent={"n": "one"})
        case "rename":
            TOOLS[:] = [tool for tool in TOOLS if tool["name"] != "old"] + [{"name": "new", "inputSchema": OBJECT}]
            send({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
            result(id, content=text("renamed"))
        case "where":
            result(id, content=text(str(os.getpid())))
        case "env":
            result(id, content=text(str(sorted(os.environ))))
        case "die":
            os._exit(3)
        case "old" | "new" | "fine" | "a b" | "strict":
            result(id, content=text(f"{name} ran"))
        case "raw":
            print_raw(id, params)
        case _:
            send({"jsonrpc": "2.0", "id": id, "error": {"code": -32602, "message": f"unknown tool {name}"}})


def main() -> None:
    is_endless = "endless" in sys.argv
    if "tools" in sys.argv:
        TOOLS[:] = json.loads(sys.argv[sys.argv.index("tools") + 1])
    listing = sys.argv[sys.argv.index("list") + 1] if "list" in sys.argv else None
    for line in sys.stdin:
        message = json.loads(line)
        id, params = message.get("id"), message.get("params") or {}
        match message["method"]:
            case "initialize":
                info = {"name": "liar", "version": "1"}
                version, capabilities = params["protocolVersion"], {"tools": {"listChanged": True}}
                result(id, protocolVersion=version, capabilities=capabilities, serverInfo=info)
            case "tools/list" if listing is not None:
                sys.stdout.write(listing.replace("$ID", json.dumps(id)) + "\n")
                sys.stdout.flush()
            case "tools/list":
                cursor = {"nextCursor": "again"} if is_endless else {}
                result(id, tools=TOOLS, **cursor)
            case "tools/call":
                call(id, params["name"], params)
            case _ if id is not None:
                send({"jsonrpc": "2.0", "id": id, "error": {"code": -32601, "message": "no such method"}})


if __name__ == "__main__":
    main()
