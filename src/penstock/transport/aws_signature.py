"""AWS request signatures, made by botocore with the credentials that it finds."""

from __future__ import annotations

import re
from importlib import import_module
from typing import Any

from penstock.errors import MissingKeyError, UsageError


def signature(url: str, body: bytes) -> dict[str, str]:
    """The headers that sign a request to Bedrock."""
    try:
        auth, awsrequest = import_module("botocore.auth"), import_module("botocore.awsrequest")
        session: Any = import_module("botocore.session").Session()
    except ImportError:
        raise UsageError(
            "no API key for bedrock: set AWS_BEARER_TOKEN_BEDROCK, or use AWS credentials "
            "(pip install 'penstock-llm[aws]')"
        ) from None
    credentials = session.get_credentials()
    if credentials is None:
        raise MissingKeyError("bedrock", ("AWS_BEARER_TOKEN_BEDROCK", "AWS_ACCESS_KEY_ID"))
    match = re.search(r"\.([a-z]{2}(?:-[a-z]+)+-\d)\.", url)
    region = match[1] if match else session.get_config_variable("region") or "us-east-1"
    request: Any = awsrequest.AWSRequest("POST", url, headers={"content-type": "application/json"}, data=body)
    auth.SigV4Auth(credentials, "bedrock", region).add_auth(request)
    return dict(request.headers)
