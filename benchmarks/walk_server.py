"""The provider of a walk, in its own process: `python -m benchmarks.walk_server pieces|marked calls|text`.

It prints its port, then a line whenever a response begins. It sends one frame per byte that it reads from its standard
input, and ends with it.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from benchmarks.walk_text import MARKED_PIECES, PIECES, frames, responses

may_send = threading.Semaphore(0)
RESPONSES = responses(MARKED_PIECES if sys.argv[1] == "marked" else PIECES, has_calls=sys.argv[2] == "calls")


class Answering(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        place = sum(message["role"] == "tool" for message in body["messages"]) // 2
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        print("response", flush=True)
        for frame in frames(RESPONSES[place]):
            may_send.acquire()
            data = f"data: {frame}\n\n".encode()
            self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.write(b"0\r\n\r\n")

    def log_message(self, *_: object) -> None:
        pass


def permit() -> None:
    while sys.stdin.buffer.read(1):
        may_send.release()
    os._exit(0)


if __name__ == "__main__":
    with ThreadingHTTPServer(("127.0.0.1", 0), Answering) as server:
        print(server.server_address[1], flush=True)
        threading.Thread(target=permit, daemon=True).start()
        server.serve_forever()
