"""The options of a request as typed dictionaries, so that a type checker finds a misspelt or a wrong one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from penstock.events import Confirm
from penstock.healing.settings import Healing
from penstock.wires.shared.request import ModelOptions


class StepOptions(ModelOptions, total=False):
    """The options that `Agent` passes on to each of its requests: see `Model.ask`."""

    tool_choice: str
    parallel: bool | None
    streaming: bool
    confirm: Confirm
    extra: Mapping[str, Any] | None


class RequestOptions(StepOptions, total=False):
    """The options of one request: `Model.stream`, `complete` and their async twins. `Model.ask` explains them."""

    system_prompt: str
    calls: str | Sequence[str]
    rescue: bool | Iterable[str]
    healing: Healing | None
    id_prefix: str
    partial_arguments: bool
