"""Schemathesis on the description of our own protocol: the server answers as it says, and never with 500."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.clients.test_chat_page import serving

CHECKS = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"


def test_no_request_of_schemathesis_is_answered_with_an_error_of_the_server(tmp_path: Path) -> None:
    with serving(str(tmp_path / "runs.db")) as url:
        program = Path(sys.executable).with_name("schemathesis")
        command = [str(program), "run", f"{url}openapi.json", "--checks", CHECKS, "--max-examples", "20"]
        command += ["--generation-deterministic", "--no-shrink", "--request-timeout", "20", "--warnings", "off"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=500, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
