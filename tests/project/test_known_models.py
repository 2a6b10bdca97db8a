"""The names of models that editors complete: the type has all of the table, and other libraries know them too."""

from __future__ import annotations

from typing import get_args

from pydantic_ai.models import known_model_names

from penstock import KnownModel, Model
from penstock.model.known_models import MODELS
from tests.known_models import TARGET, written

ELSEWHERE = {"moonshot": "moonshotai"}
"""Providers that pydantic-ai names in another way."""


def test_the_literals_are_those_of_the_table() -> None:
    text = TARGET.read_text(encoding="utf-8")
    assert text == written(text), "run python -m tests.known_models"


def test_every_known_name_is_the_name_of_a_model() -> None:
    for name in get_args(KnownModel):
        assert Model(name).name == name


def test_another_library_knows_the_same_names() -> None:
    others = {*known_model_names()}
    unknown = [
        (provider, name)
        for provider, names in MODELS.items()
        for name in names
        if f"{ELSEWHERE.get(provider, provider)}:{name}" not in others
    ]
    assert not unknown
