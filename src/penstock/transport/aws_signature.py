"""AWS request signatures by botocore, with the credentials that it finds.

This blocks: the first session is slow to make, and credentials that expire are refreshed over the network. So it is
called for each attempt, in async code in a thread.
"""

from __future__ import annotations

import os
import re
import threading
from importlib import import_module
from typing import Any

from penstock.errors import MissingKeyError, UsageError
from penstock.transport.threads.forks import after_fork


class _Sessions:
    """The session of the process. Another one is made when the environment of AWS has changed."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self._lock = threading.Lock()
        self._environment: dict[str, str] = {}
        self._session: Any = None
        self._credentials: Any = None

    def find(self) -> tuple[Any, Any]:
        """The session and its credentials, None if there are none."""
        environment = {name: value for name, value in os.environ.items() if name.startswith("AWS_")}
        with self._lock:
            if self._credentials is None or environment != self._environment:
                self._session = import_module("botocore.session").Session()
                self._credentials = self._session.get_credentials()
                self._environment = environment
            return self._session, self._credentials


_sessions = _Sessions()
after_fork(_sessions.reset)


def signature(url: str, body: bytes) -> dict[str, str]:
    """The headers that sign a request to Bedrock."""
    try:
        auth, awsrequest = import_module("botocore.auth"), import_module("botocore.awsrequest")
        session, credentials = _sessions.find()
    except ImportError:
        raise UsageError(
            "no API key for bedrock: set AWS_BEARER_TOKEN_BEDROCK, or use AWS credentials "
            "(pip install 'penstock-llm[aws]')"
        ) from None
    if credentials is None:
        raise MissingKeyError("bedrock", ("AWS_BEARER_TOKEN_BEDROCK", "AWS_ACCESS_KEY_ID"))
    match = re.search(r"\.([a-z]{2}(?:-[a-z]+)+-\d)\.", url)
    region = match[1] if match else session.get_config_variable("region") or "us-east-1"
    request: Any = awsrequest.AWSRequest("POST", url, headers={"content-type": "application/json"}, data=body)
    auth.SigV4Auth(credentials.get_frozen_credentials(), "bedrock", region).add_auth(request)
    return dict(request.headers)
