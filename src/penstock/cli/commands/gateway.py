"""`penstock gateway`: stands between clients and model servers, and repairs their tool calls."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import click
from msgspec import Struct
from msgspec.structs import replace

from penstock.cli.commands.completion import complete_file
from penstock.cli.exit_signals import exit_signals
from penstock.cli.model_options import CommandError
from penstock.cli.printed_log import LogFormat, announce, log_format_option, printed_records
from penstock.cli.runs.drain_option import drain_option
from penstock.errors import PenstockError, UsageError
from penstock.jsontext.shown_text import escape

if TYPE_CHECKING:
    from penstock.cli.client_settings import Gateway
    from penstock.gateway.app import GatewayApp
    from penstock.gateway.context import SettingsSource

CONFIG = "gateway.toml"
UNNAMED = "local-model"
"""The name in the settings of a client whose model is not given."""


class Options(Struct, frozen=True, kw_only=True):
    """The options of the command."""

    upstreams: tuple[str, ...]
    config: str | None
    model: str
    calls: str
    rescue: bool
    repair: str
    empty_answers: bool
    reasoning_only: bool
    repeated_calls: int
    host: str
    port: int
    key: str
    hosts: tuple[str, ...]
    origins: tuple[str, ...]
    proxies: tuple[str, ...]
    drain_seconds: float
    log_format: LogFormat
    record: str | None
    inspect: bool
    client: str | None
    write: bool
    check: bool


def complete_client(_context: click.Context, _option: click.Parameter, start: str) -> list[str]:
    """The names of clients that begin like this."""
    from penstock.cli.client_settings import CLIENTS

    return [name for name in CLIENTS if name.startswith(start)]


def complete_calls(_context: click.Context, _option: click.Parameter, start: str) -> list[str]:
    """The ways to ask for calls that begin like this."""
    from penstock.dialects.prompt import prompts

    return [name for name in ("native", "raw", "auto", "xml", *sorted(prompts())) if name.startswith(start)]


@click.command()
@click.option("--upstream", "upstreams", multiple=True, metavar="[NAME=]URL",
              help="The URL of a model server, or the name of a provider; repeatable.")  # fmt: skip
@click.option("--config", metavar="FILE", shell_complete=complete_file,
              help="A TOML file with the settings; the default without --upstream is gateway.toml.")  # fmt: skip
@click.option(
    "--model", default="", metavar="NAME", help="Request this model from the upstream, whichever model a client names."
)
@click.option("--calls", default="native", show_default=True, metavar="WAY", shell_complete=complete_calls,
              help="Ask for calls natively, as raw text, in a dialect (xml …), or natively first (auto).")  # fmt: skip
@click.option("--rescue/--no-rescue", default=True, show_default=True,
              help="Find calls that a model wrote into its text.")  # fmt: skip
@click.option("--repair", type=click.Choice(["off", "safe", "guess"]), default="safe", show_default=True,
              help="Repair damaged arguments of calls.")  # fmt: skip
@click.option("--watch-empty-answers", "empty_answers", is_flag=True,
              help="Ask the model once more if its response after a tool result is empty.")  # fmt: skip
@click.option("--watch-reasoning-only", "reasoning_only", is_flag=True,
              help="Ask the model once more if its response has only reasoning.")  # fmt: skip
@click.option("--watch-repeated-calls", "repeated_calls", default=0, type=click.IntRange(0), metavar="N",
              help="Remind the model after N equal calls with equal results, and end after twice as many.")  # fmt: skip
@click.option("--host", default="127.0.0.1", show_default=True, metavar="ADDRESS", help="The address to listen on.")
@click.option("--port", default=4000, show_default=True, type=click.IntRange(0, 65535), metavar="PORT",
              help="The port to listen on; 0 picks a free one.")  # fmt: skip
@click.option("--key", default="", envvar="PENSTOCK_GATEWAY_KEY", metavar="KEY",
              help="The key that clients must send; $PENSTOCK_GATEWAY_KEY hides it from other users.")  # fmt: skip
@click.option(
    "--allow-host", "hosts", multiple=True, metavar="NAME", help="Accept requests for this host name; repeatable."
)
@click.option("--allow-origin", "origins", multiple=True, metavar="ORIGIN",
              help="Let web pages of this origin use the gateway, as in https://example.com; repeatable.")  # fmt: skip
@click.option("--trust-proxy", "proxies", multiple=True, metavar="ADDRESS",
              help="Believe X-Forwarded-For of the proxy at this address; repeatable.")  # fmt: skip
@drain_option
@log_format_option
@click.option("--record", metavar="FILE", shell_complete=complete_file,
              help="Append every exchange with an upstream to this file.")  # fmt: skip
@click.option("--inspect/--no-inspect", default=True, show_default=True,
              help="Keep the last requests in memory, and show them at /inspect.")  # fmt: skip
@click.option("--for", "client", metavar="CLIENT", shell_complete=complete_client,
              help="Print the settings that point a client here, and exit: codex, opencode, vscode …")  # fmt: skip
@click.option("--check", is_flag=True,
              help="Ask the servers what they are, print what is wrong and what cures it, and exit.")  # fmt: skip
@click.option("--write", is_flag=True, help="With --for and --model: merge the settings into the client's own file.")
def gateway(**options: object) -> None:
    """Repair the tool calls of any model server, for clients of any protocol.

    \b
      penstock gateway --upstream http://127.0.0.1:11434/v1
      penstock gateway --upstream vllm=http://127.0.0.1:8000/v1 --model qwen3
      penstock gateway --upstream ollama --calls auto
      penstock gateway --config gateway.toml --host 0.0.0.0 --key …
      penstock gateway --for codex --model qwen3 --write
      penstock gateway --check --upstream http://127.0.0.1:11434/v1 --model qwen3

    Clients use http://127.0.0.1:4000/v1 for Chat Completions and Responses, and http://127.0.0.1:4000 for Messages,
    Gemini and Ollama. GET /healed reports what was repaired, and the page /inspect shows every frame.
    """
    try:
        chosen = Options(**options)  # type: ignore[arg-type]
        if click.get_current_context().get_parameter_source("key") is click.core.ParameterSource.COMMANDLINE:
            click.echo(
                "note: every user of this machine sees --key in the list of processes; use $PENSTOCK_GATEWAY_KEY",
                err=True,
            )
        if chosen.check:
            _check(chosen)
        elif chosen.client:
            _show_client(chosen)
        elif chosen.write:
            raise UsageError("--write needs --for CLIENT")
        else:
            _run(chosen)
    except PenstockError as error:
        raise CommandError(str(error)) from None


def _check(options: Options) -> None:
    """Print what is wrong with the servers. No request goes to a model."""
    from penstock.cli.gateway_check import check_lines, exit_code
    from penstock.gateway.servers.check import check_upstreams

    is_file = bool(options.config) or not options.upstreams
    settings = _settings(replace(options, model="") if is_file else options).current
    checked = asyncio.run(check_upstreams(settings, options.model))
    for line in check_lines(checked):
        click.echo(line)
    raise SystemExit(exit_code(checked))


def _show_client(options: Options) -> None:
    """Print the settings of a client, and write them with `--write`."""
    from penstock.cli.client_settings import KEY, Gateway, settings_for, settings_text, write

    if options.write and not options.model:
        raise UsageError("--write needs --model NAME, the model that the client will request")
    host = "127.0.0.1" if options.host in ("0.0.0.0", "::") else options.host  # it is only shown
    name = f"[{host}]" if ":" in host else host
    gateway = Gateway(f"http://{name}:{options.port}", options.model or UNNAMED, options.key or KEY)
    gateway = replace(gateway, window=_window(options, gateway) or gateway.window)
    settings = settings_for(options.client or "", gateway)
    click.echo(escape(settings_text(settings)), nl=False)
    if not options.model:
        note = f"note: {UNNAMED} stands for the model that the client will request; use --model NAME"
        click.echo(escape(note), err=True)
    for line in write(settings) if options.write else ():
        click.echo(escape(line))


def _window(options: Options, gateway: Gateway) -> int | None:
    """The context window of the client's model: as its server reports it, or the running gateway; None if unknown."""
    from penstock.cli.model_window import facts_behind, facts_of_gateway

    if options.upstreams or options.config or Path(CONFIG).exists():
        settings = _settings(replace(options, model="") if options.config or not options.upstreams else options)
        return facts_behind(settings.current, options.model).window
    return facts_of_gateway(gateway.url, gateway.key, gateway.model).window


def _run(options: Options) -> None:
    from penstock.asgi.access import is_loopback
    from penstock.asgi.server import address_of, listen, run_server
    from penstock.gateway.app import app
    from penstock.inspector.inspections import Inspections

    if not options.key and not is_loopback(options.host):
        raise UsageError(f"listening on {options.host} lets other machines use the gateway: set a key with --key …")
    source = _settings(options)
    served = app(
        settings=source, key=options.key, hosts=options.hosts, origins=options.origins, proxies=options.proxies,
        record=options.record,
        inspections=Inspections() if options.inspect else None,
    )  # fmt: skip
    signals, form = _exit_signals(served), options.log_format
    with listen(options.host, options.port) as listener, printed_records("penstock.gateway", form=form):
        address = address_of(listener)
        announce(_welcome(served, address), form, {"address": address})
        run_server(
            served, listener, served.context.limits, signals, access=served.access, on_stop=served.stop_feeds,
            drain_seconds=options.drain_seconds, is_logging=form == "json",
        )  # fmt: skip


def _exit_signals(served: GatewayApp) -> list[int]:
    """The signals that stop the gateway; SIGHUP reloads its file instead, if it has one."""
    from penstock.gateway.config.settings_file import FileSettings

    if not isinstance(served.context.source, FileSettings):
        return exit_signals()
    if hasattr(signal, "SIGHUP"):
        signal.signal(signal.SIGHUP, lambda *_: served.reload())
    return [signal.SIGTERM]


def _settings(options: Options) -> SettingsSource:
    """The settings of the options, or of a file."""
    from penstock.gateway.config.settings import HEALING, GatewaySettings, Watch, upstreams_by_name
    from penstock.gateway.config.settings_file import FileSettings
    from penstock.gateway.config.upstream_names import read_upstream
    from penstock.gateway.context import FixedSettings

    if options.config or not options.upstreams:
        path = Path(options.config or CONFIG)
        if not path.exists() and not options.config:
            raise UsageError("the gateway has no upstream: pass --upstream http://127.0.0.1:8080/v1, or --config FILE")
        if options.upstreams or options.model or options.calls != "native":
            raise UsageError("--upstream, --model and --calls cannot be combined with --config: set them in the file")
        if not options.rescue or options.repair != "safe":
            raise UsageError("--rescue and --repair cannot be combined with --config: set them in the file")
        if options.empty_answers or options.reasoning_only or options.repeated_calls:
            raise UsageError("--watch-… cannot be combined with --config: write a table [watch] in the file")
        return FileSettings(path)
    healing = replace(HEALING, rescue=options.rescue, repair=options.repair)  # click checks their values
    upstreams = upstreams_by_name(map(read_upstream, options.upstreams))
    watch = Watch(
        empty_answers=options.empty_answers,
        reasoning_only=options.reasoning_only,
        repeated_calls=options.repeated_calls,
    )
    return FixedSettings(
        GatewaySettings(upstreams=upstreams, model=options.model, calls=options.calls, healing=healing, watch=watch)
    )


def _welcome(served: GatewayApp, address: str) -> str:
    names = ", ".join(served.context.source.current.upstreams)
    page = f"{address}/inspect" if served.context.inspections is not None else f"{address}/healed"
    return f"gateway to {names} on {address}/v1 (what it does: {page}); Ctrl-C stops"
