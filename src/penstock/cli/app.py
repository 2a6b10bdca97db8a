"""The root command, and how every command ends when it is interrupted."""

from __future__ import annotations

import os
import sys
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import click

from penstock.cli.chat import chat
from penstock.cli.check import check
from penstock.cli.decode import decode
from penstock.cli.demo import demo
from penstock.cli.models import models
from penstock.cli.record import record, replay

INTERRUPTED = 130  # what a shell reports for a command that Ctrl-C ended,
READER_GONE = 141  # and for one whose reader went away (`| head`)


@contextmanager
def quietly() -> Generator[None]:
    """Let Ctrl-C and a closed pipe end the command without a word."""
    try:
        yield
    except KeyboardInterrupt:
        raise SystemExit(INTERRUPTED) from None
    except BrokenPipeError:
        # What is still buffered has nowhere to go; without this, Python would complain about it on its way out.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(READER_GONE) from None


class QuietGroup(click.Group):
    """A group whose commands end quietly."""

    def invoke(self, ctx: click.Context) -> Any:
        with quietly():
            return super().invoke(ctx)


@click.group(cls=QuietGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="penstock", message="%(prog)s %(version)s")
def penstock() -> None:
    """Streaming tool calls from any LLM provider: one event stream, every call exact.

    \b
    Start here:
      penstock demo                                  watch an agent at work
      penstock chat -m sim:demo                      talk to a model that needs no key
      penstock decode --wire openai-chat FILE        read a recorded response
      curl -N … | penstock decode --wire anthropic   read one while it arrives
    """


for command in (chat, check, decode, demo, models, record, replay):
    penstock.add_command(command)
