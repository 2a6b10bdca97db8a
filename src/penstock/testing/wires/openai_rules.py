"""The error messages for invalid values that both OpenAI wires share."""

from __future__ import annotations

from typing import Any

from penstock.testing.wires.rejection import Rejection, Rejections, is_word, json_type


def invalid(message: str, param: str | None, code: str | None = "invalid_value") -> Rejection:
    """A rejection that names the parameter."""
    return Rejection(message, fields={"param": param, "code": code})


def missing(path: str) -> Rejection:
    """A required parameter is missing."""
    return invalid(f"Missing required parameter: '{path}'.", path, "missing_required_parameter")


def empty_array(path: str) -> Rejection:
    """An array is empty."""
    problem = "Expected an array with minimum length 1, but got an empty array instead."
    return invalid(f"Invalid '{path}': empty array. {problem}", path, "empty_array")


def not_a_string(path: str, value: Any) -> Rejection:
    """A value is not a string."""
    return invalid(
        f"Invalid type for '{path}': expected a string, but got {json_type(value)} instead.", path, "invalid_type"
    )


def unknown_value(path: str, value: Any, values: tuple[str, ...]) -> Rejection:
    """A value is not one of the supported ones."""
    known = ", ".join(f"'{known}'" for known in values[:-1]) + f", and '{values[-1]}'"
    return invalid(f"Invalid value: '{value}'. Supported values are: {known}.", path)


def judge_string(path: str, value: Any, longest: int) -> Rejections:
    """Checks a required string and its length."""
    if value is None:
        yield missing(path)
    elif not isinstance(value, str):
        yield not_a_string(path, value)
    elif not value:
        problem = "Expected a string with minimum length 1, but got an empty string instead."
        yield invalid(f"Invalid '{path}': empty string. {problem}", path, "empty_string")
    elif len(value) > longest:
        problem = f"Expected a string with maximum length {longest}, but got a string with length {len(value)} instead."
        yield invalid(f"Invalid '{path}': string too long. {problem}", path, "string_above_max_length")


def judge_name(path: str, value: Any, longest: int) -> Rejections:
    """Checks the name of a tool."""
    yield from judge_string(path, value, longest)
    if not is_word(value, longest):
        problem = "Expected a string that matches the pattern '^[a-zA-Z0-9_-]+$'."
        yield invalid(f"Invalid '{path}': string does not match pattern. {problem}", path)
