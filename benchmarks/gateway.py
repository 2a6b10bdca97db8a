"""What the gateway costs: CPU time per chunk, memory per stream and added latency, beside relays that copy bytes.

The first row is what the gateway is for: prose with five tools declared, in which it looks for calls. The relays are
processes of their own and take turns; the best round of each counts, because disturbances only add to it. With the
peers, LiteLLM's proxy gets the same streams once.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks import gateway_load
from benchmarks.environment import ROOT, Environment, InstallFailed
from benchmarks.gateway_load import CHUNKS, INTERVAL, STREAMS, Load
from benchmarks.process import ProcessFailed, variables
from benchmarks.report import Report, Table, say

ROUNDS = 3
TOOLS_TARGET, CPU_TARGET = 1.8, 1.5
"""How many times the CPU time per chunk of the relay the gateway may take, with five tools declared and without."""
MEMORY_TARGET = 50.0
"""How many kB a stream may take."""
PROXY_TARGET = 0.1
"""What part of the CPU time per chunk of LiteLLM's proxy the gateway may take."""
PROXY = Environment("litellm-proxy", ("litellm[proxy]==1.106.2",))
PROXY_SETTINGS = """
model_list:
  - model_name: "*"
    litellm_params: {{model: "openai/*", api_base: "{upstream}", api_key: "none"}}
general_settings: {{dangerously_permit_weak_or_unset_master_key: true}}
"""
PROXY_SECONDS = 120.0
"""How long the proxy may take to start."""
WITH_TOOLS, GATEWAY = "gateway, five tools declared", "gateway, no tools"
NO_RELAY, RELAY, NGINX, LITELLM = "no relay", "raw relay", "nginx", "LiteLLM's proxy"
TARGETS = {WITH_TOOLS: TOOLS_TARGET, GATEWAY: CPU_TARGET}
NGINX_SETTINGS = """
daemon off; master_process off; pid {folder}/nginx.pid; error_log {folder}/error.log;
events {{ worker_connections 4096; }}
http {{
  access_log off; client_body_temp_path {folder}; proxy_temp_path {folder}; fastcgi_temp_path {folder};
  uwsgi_temp_path {folder}; scgi_temp_path {folder};
  upstream behind {{ server {address}; keepalive 300; }}
  server {{
    listen 127.0.0.1:{port};
    location / {{
      proxy_pass http://behind; proxy_http_version 1.1; proxy_set_header Connection ""; proxy_buffering off;
    }}
  }}
}}
"""
COLUMNS = ["", "µs/chunk", "× relay", "kB/stream", "lag p50 ms", "lag p99 ms", "first p50 ms"]


def measure() -> Report:
    """The gateway beside the relay."""
    report = Report()
    if not Path("/proc/self/stat").exists():
        report.skipped.append("the CPU time of other processes is read from /proc")
    else:
        _judge(report, _rounds(report))
    return report


def measure_peers() -> Report:
    """The same, and LiteLLM's proxy in its own environment."""
    report = Report()
    if not Path("/proc/self/stat").exists():
        return measure()
    loads = _rounds(report)
    try:
        if not PROXY.is_ready:
            say(f"gateway: installing {', '.join(PROXY.requirements)} into .bench/{PROXY.name}")
            PROXY.make()
        loads[LITELLM] = asyncio.run(_load(LITELLM))
    except (InstallFailed, ProcessFailed) as failure:
        report.skipped.append(f"{LITELLM}: {failure}")
    _judge(report, loads)
    if LITELLM in loads:
        part = report.judge("CPU per chunk, times LiteLLM's", loads[WITH_TOOLS].cpu / loads[LITELLM].cpu, PROXY_TARGET)
        report.notes.append(f"gateway, times the CPU per chunk of {', '.join(PROXY.requirements)}: {part}")
    return report


def _rounds(report: Report) -> dict[str, Load]:
    """The best load of each relay."""
    kinds, loads = [WITH_TOOLS, RELAY, NGINX, GATEWAY], dict[str, Load]()
    if shutil.which("nginx") is None:
        kinds.remove(NGINX)
        report.skipped.append("nginx: it is not installed")
    report.notes.append(f"gateway: the load of the machine was {', '.join(f'{one:.1f}' for one in os.getloadavg())}")
    for _ in range(ROUNDS):
        for kind in kinds:
            load = asyncio.run(_load(kind))
            loads[kind] = min(load, loads.get(kind, load), key=lambda one: (-one.whole, one.cpu))
    return loads | {NO_RELAY: asyncio.run(_load(NO_RELAY))}


def _judge(report: Report, loads: Mapping[str, Load]) -> None:
    """Adds a table with a line per relay."""
    lines: list[list[str]] = []
    for kind, load in loads.items():
        ratio, memory = load.cpu / loads[RELAY].cpu, load.memory
        target = TARGETS.get(kind)
        report.rows.append({"kind": kind, "cpu": load.cpu, "ratio": ratio, "memory": memory, "times": load.times})
        if load.whole < STREAMS:
            report.missed.append(f"{kind}: {STREAMS - load.whole} streams were lost")
        cells = [
            report.judge(f"{kind}: CPU per chunk, times the relay", ratio, target) if target else f"{ratio:.2f}",
            report.judge(f"{kind}: kB per stream", memory, MEMORY_TARGET) if target else f"{memory:.0f}",
        ]
        lines.append([kind, f"{load.cpu:.1f}", *cells, *(f"{time:.2f}" for time in load.times)])
    title = f"Gateway: {STREAMS} streams of {CHUNKS} chunks of prose, one every {INTERVAL * 1000:.0f} ms"
    report.tables.append(Table(title, COLUMNS, lines))


async def _load(kind: str) -> Load:
    say(f"{STREAMS} streams: {kind}")
    async with gateway_load.upstream() as port:
        if kind == NO_RELAY:
            return await gateway_load.run(port)
        with _relay(kind, f"http://127.0.0.1:{port}/v1") as (process, relay):
            return await gateway_load.run(relay, process, has_tools=kind in (WITH_TOOLS, LITELLM))


@contextmanager
def _relay(kind: str, upstream: str) -> Generator[tuple[int, int]]:
    """The id of the process of a relay, and its port."""
    if kind in (LITELLM, NGINX):
        with _proxy(upstream) if kind == LITELLM else _nginx(upstream) as found:
            yield found
        return
    server = "relay" if kind == RELAY else "gateway"
    command = [sys.executable, "-m", "benchmarks.gateway_server", server, upstream]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=ROOT, env=variables(), stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield process.pid, int(process.stdout.readline())
        finally:
            process.stdin.close()


@contextmanager
def _nginx(upstream: str) -> Generator[tuple[int, int]]:
    """nginx as one process, without buffers."""
    port, address = _free_port(), upstream.removeprefix("http://").removesuffix("/v1")
    with TemporaryDirectory() as folder:
        settings = Path(folder) / "nginx.conf"
        settings.write_text(NGINX_SETTINGS.format(folder=folder, address=address, port=port), encoding="utf-8")
        with subprocess.Popen(["nginx", "-p", folder, "-c", str(settings)]) as process:
            try:
                _wait_for(port, process)
                yield process.pid, port
            finally:
                process.kill()


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
    return port


@contextmanager
def _proxy(upstream: str) -> Generator[tuple[int, int]]:
    """LiteLLM's proxy with one worker, as its documentation starts it."""
    port = _free_port()
    with TemporaryDirectory() as folder:
        settings = Path(folder) / "config.yaml"
        settings.write_text(PROXY_SETTINGS.format(upstream=upstream), encoding="utf-8")
        command = [PROXY.python.with_name("litellm"), "--config", settings, "--host", "127.0.0.1", "--port", str(port)]
        quiet = subprocess.DEVNULL
        with subprocess.Popen(command, cwd=folder, env=variables(), stdout=quiet, stderr=quiet) as process:
            try:
                _wait_for(port, process)
                yield process.pid, port
            finally:
                process.kill()


def _wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    """Waits until a server accepts connections."""
    deadline = time.monotonic() + PROXY_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1.0):
            return
        time.sleep(0.2)
    is_over = process.poll() is not None
    raise ProcessFailed(f"exit {process.returncode}" if is_over else f"not ready after {PROXY_SECONDS:.0f} seconds")
