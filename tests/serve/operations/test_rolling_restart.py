"""A rolling restart of two servers behind a real nginx, under load: no request fails if `/readyz` is watched."""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Generator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.serve.operations.test_readiness import AGENT_FILE, PATIENCE, ask

NGINX = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")
CLIENTS = 4
DRAIN = "2.5"
CONFIG = """
daemon off;
master_process on;
pid {folder}/nginx.pid;
error_log {folder}/error.log;
events {{ }}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    upstream agents {{
        include {folder}/servers.conf;
        keepalive 16;
    }}
    server {{
        listen 127.0.0.1:{port};
        location / {{
            proxy_pass http://agents;
            proxy_http_version 1.1;
            proxy_set_header Connection "";
            proxy_set_header Host localhost;
            proxy_buffering off;
            proxy_next_upstream off;  # so that a request to a server that has stopped fails
        }}
    }}
}}
"""


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


class Fleet:
    """Two servers on one log, and nginx before them. It has those servers as upstreams that are ready."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self.servers = (free_port(), free_port())
        self.processes: dict[int, subprocess.Popen[bytes]] = {}
        self.nginx: subprocess.Popen[bytes] | None = None
        self._upstreams: list[int] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self, port: int) -> None:
        command = [sys.executable, "-m", "penstock", "serve", "agent.py", "--log", "runs.db", "--port", str(port),
                   "--drain-seconds", DRAIN, "--quiet"]  # fmt: skip
        self.processes[port] = subprocess.Popen(command, cwd=self.folder, stderr=subprocess.DEVNULL)
        end = time.monotonic() + PATIENCE
        while not self.is_ready(port):
            assert time.monotonic() < end
            time.sleep(0.05)

    def stop(self) -> None:
        for process in self.processes.values():
            process.kill()
            process.wait()

    def is_ready(self, port: int) -> bool:
        with suppress(OSError):
            return ask(f"http://127.0.0.1:{port}/readyz")[0] == 200
        return False

    def use(self, ports: list[int]) -> None:
        """Let nginx send requests to these servers."""
        if ports == self._upstreams or not ports:
            return
        self._upstreams = ports
        lines = "".join(f"server 127.0.0.1:{port};\n" for port in ports)
        (self.folder / "servers.conf").write_text(lines, encoding="utf-8")
        if self.nginx is not None:
            self.nginx.send_signal(signal.SIGHUP)

    def watch(self, is_over: threading.Event) -> None:
        """What the controller of a load balancer does: ask each server, and use those that are ready."""
        while not is_over.wait(0.1):
            self.use([port for port in self.servers if self.is_ready(port)])

    def restart(self) -> None:
        """Restart one server after the other."""
        for port in self.servers:
            self.processes[port].send_signal(signal.SIGTERM)
            self.processes[port].wait(PATIENCE)
            self.start(port)
            time.sleep(0.5)


@contextmanager
def running_fleet(folder: Path) -> Generator[Fleet]:
    (folder / "agent.py").write_text(AGENT_FILE, encoding="utf-8")
    fleet = Fleet(folder)
    with ExitStack() as stack:
        stack.callback(fleet.stop)
        for port in fleet.servers:
            fleet.start(port)
        fleet.use([*fleet.servers])
        config = folder / "nginx.conf"
        config.write_text(CONFIG.format(folder=folder, port=fleet.port), encoding="utf-8")
        assert NGINX is not None
        fleet.nginx = stack.enter_context(subprocess.Popen([NGINX, "-c", str(config), "-p", str(folder)]))
        stack.callback(fleet.nginx.terminate)
        end = time.monotonic() + PATIENCE
        while not fleet.is_ready(fleet.port):  # nginx does not listen at once
            assert time.monotonic() < end
            time.sleep(0.05)
        yield fleet


class Load:
    """Clients that start runs, read their events to the end, and look at them, until they are told to stop."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.requests = 0
        self.failures: list[str] = []
        self._is_over = threading.Event()
        self._threads = [threading.Thread(target=self._use) for _ in range(CLIENTS)]

    @contextmanager
    def running(self) -> Generator[None]:
        for thread in self._threads:
            thread.start()
        try:
            time.sleep(0.5)
            yield
            time.sleep(0.5)
        finally:
            self._is_over.set()
            for thread in self._threads:
                thread.join()

    def _use(self) -> None:
        while not self._is_over.is_set():
            started = self._ask("/runs", {"prompt": "Hi"})
            if started is not None:
                events = self._read(f"/runs/{started['id']}/events")
                if events is not None and b'"type":"done"' not in events:
                    self.failures.append("a stream without its end")
                self._ask(f"/runs/{started['id']}")

    def _ask(self, path: str, body: Any = None) -> Any:
        self.requests += 1
        try:
            status, answer = ask(self.url + path, body)
        except (OSError, ValueError) as error:
            self.failures.append(f"{path}: {error!r}")
            return None
        if status >= 400:
            self.failures.append(f"{path}: {status} {answer}")
            return None
        return answer

    def _read(self, path: str) -> bytes | None:
        self.requests += 1
        try:
            with urllib.request.urlopen(self.url + path, timeout=PATIENCE) as response:
                return bytes(response.read())
        except OSError as error:
            self.failures.append(f"{path}: {error!r}")
            return None


@pytest.mark.skipif(NGINX is None, reason="nginx is not installed")
def test_a_rolling_restart_behind_nginx_fails_no_request(tmp_path: Path) -> None:
    with running_fleet(tmp_path) as fleet:
        is_over = threading.Event()
        watcher = threading.Thread(target=fleet.watch, args=(is_over,))
        watcher.start()
        load = Load(fleet.url)
        try:
            with load.running():
                fleet.restart()
        finally:
            is_over.set()
            watcher.join()
    assert load.failures == []
    assert load.requests > 100


@pytest.mark.skipif(NGINX is None, reason="nginx is not installed")
def test_without_a_watcher_requests_to_a_server_that_restarts_fail(tmp_path: Path) -> None:
    """What the test above would see, if nobody watched `/readyz`."""
    with running_fleet(tmp_path) as fleet:
        load = Load(fleet.url)
        with load.running():
            fleet.restart()
    assert load.failures
