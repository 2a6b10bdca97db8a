"""The option of servers that says how long they answer after they have said that they are about to stop."""

from __future__ import annotations

import click

from penstock.asgi.readiness import DRAIN_SECONDS

drain_option = click.option(
    "--drain-seconds", type=click.FloatRange(0), default=DRAIN_SECONDS, show_default=True, metavar="SECONDS",
    help="How long to answer after /readyz has turned, if it is probed.",
)  # fmt: skip
