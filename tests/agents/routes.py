"""The ways from an agent to a server: through the gateway, direct, and through the proxy of LiteLLM."""

from __future__ import annotations

import json
import socket
import subprocess
import time
import urllib.request
import venv
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.agents.agents import ROOT
from tests.agents.settings import MODEL
from tests.gateway_process import gateway_process

LITELLM = ROOT / ".cache" / "litellm"
"""The virtual environment of LiteLLM, which is not a dependency of the project."""
LITELLM_VERSION = "1.106.2"
_START_SECONDS = 120.0


def through_gateway(url: str) -> AbstractContextManager[str]:
    """The address of the gateway in front of a server, with its default settings."""
    return gateway_process({"habits": f"{url}/v1"})


@contextmanager
def direct(url: str) -> Generator[str]:
    """The address of the server itself."""
    yield url


@contextmanager
def through_litellm(url: str) -> Generator[str]:
    """The address of LiteLLM's proxy in front of a server."""
    row: dict[str, object] = {"model": f"hosted_vllm/{MODEL}", "api_base": f"{url}/v1", "api_key": "dummy"}
    row["use_chat_completions_api"] = True  # the server does not speak Responses
    options = {"telemetry": False, "num_retries": 0, "request_timeout": 60, "drop_params": True}
    settings = {"model_list": [{"model_name": MODEL, "litellm_params": row}], "litellm_settings": options}
    port = _free_port()
    with TemporaryDirectory(prefix="penstock-litellm-") as folder:
        config, log = Path(folder) / "config.yaml", Path(folder) / "log.txt"
        config.write_text(json.dumps(settings), encoding="utf-8")  # JSON is YAML
        program = [f"{LITELLM}/bin/litellm", "--config", str(config), "--host", "127.0.0.1", "--port", str(port)]
        environment = {
            "PATH": "/usr/bin:/bin",
            "HOME": folder,
            "LITELLM_LOCAL_MODEL_COST_MAP": "True",  # it would ask GitHub for prices
            "LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY": "true",  # only this machine reaches it
        }
        with (
            log.open("wb") as output,
            subprocess.Popen(program, env=environment, cwd=folder, stdout=output, stderr=subprocess.STDOUT) as process,
        ):
            try:
                _wait_until_ready(f"http://127.0.0.1:{port}/health/liveliness", process, log)
                yield f"http://127.0.0.1:{port}"
            finally:
                process.terminate()
                process.wait(30)


ROUTES: dict[str, Callable[[str], AbstractContextManager[str]]] = {
    "gateway": through_gateway,
    "direct": direct,
    "litellm": through_litellm,
}


def install_litellm() -> None:
    """Make the virtual environment of LiteLLM, once."""
    installed = LITELLM / "installed.txt"
    if installed.exists() and installed.read_text(encoding="utf-8") == LITELLM_VERSION:
        return
    venv.create(LITELLM, with_pip=True, clear=True)
    command = [f"{LITELLM}/bin/pip", "install", "--quiet", f"litellm[proxy]=={LITELLM_VERSION}"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    installed.write_text(LITELLM_VERSION, encoding="utf-8")


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def _wait_until_ready(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    end = time.monotonic() + _START_SECONDS
    while time.monotonic() < end and process.poll() is None:
        try:
            with urllib.request.urlopen(url, timeout=5):
                return
        except OSError:
            time.sleep(0.2)
    raise RuntimeError(f"LiteLLM did not start: {log.read_text(encoding='utf-8')[-1000:]}")
