"""Texts of others on terminals, in logs and in errors: nothing acts, nothing hides, and every place is covered."""

from __future__ import annotations

import ast
import io
import json
import logging
import sys
import unicodedata
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.table import Table
from rich.text import Text

import penstock
from penstock import loggers
from penstock.asgi.request import RejectedRequest
from penstock.cli.screen.terminal import SafeConsole
from penstock.cli.screen.text_block import TextBlock
from penstock.jsontext.shown_text import escape, escape_json, has_hidden, one_line, spell
from penstock.loggers import get_logger
from tests.cases import each

SOURCE = Path(penstock.__file__).parent
HOSTILE = {
    "escape sequence": "\x1b[2J\x1b]52;c;ZXZpbA==\x07",
    "C1": "\x9b31m\x85",
    "backspace": "a\x08b\x7f",
    "carriage return": "right\rwrong",
    "other line breaks": "a\u2028b\u2029c\x0b\x0c",
    "right to left": "\u202eevil\u202c\u2066x\u2069\u200e\u200f\u061c",
    "zero width": "mal\u200blory\ufeff\u2060\u00ad\u180e",
    "tags": "\U000e0041\U000e0020\U000e007f",
    "fillers": "\u115f\u1160\u3164\uffa0\u034f\u17b4",
    "joiners in Latin": "ma\u200dllo\u200cry",
    "data in selectors": "🔥\ufe0f\ufe01\U000e0101\U000e0102",
    "selectors at letters": "e\ufe0fv\ufe01il",
    "joiners in a row": "👩\u200d\u200d\u200d",
    "annotations": "\ufff9a\ufffab\ufffb",
    "musical": "\U0001d173",
    "a lone surrogate": "\ud83d",
}
HARMLESS = {
    "text": "Zürich → 東京, это «да»\n\tнет",
    "spaces": "1\xa0000\u202f€\u3000。",
    "emoji": "👩‍👩‍👧 ❤️‍🔥 🏳️‍🌈 👍🏽 1️⃣ ☀︎",
    "Persian": "می\u200cخواهم",
    "Devanagari": "क्\u200dष श्\u200cर",
    "ideographic variation": "葛\U000e0100",
    "Braille": "⠋⠀⠙",
    "private use": "\ue0b0",
}


def shapes(text: str) -> set[str]:
    """The characters of a text that a person does not see, or that act on what is around them."""
    kinds = {"Cc", "Cf", "Cs", "Zl", "Zp"}
    return {
        char for char in text if unicodedata.category(char) in kinds or char in "\u034f\u115f\u1160\u3164\uffa0\u17b4"
    }


@each("name", HOSTILE)
def test_nothing_acts_or_hides(name: str) -> None:
    text = HOSTILE[name]
    assert has_hidden(text)
    for shown in (escape(text), one_line(text), spell(text)):
        assert not shapes(shown) - {"\u200d"}  # the first one after an emoji
        assert not has_hidden(shown)
        assert escape(shown) == shown
    assert not shapes(spell(text))


@each("name", HARMLESS)
def test_what_people_write_stays(name: str) -> None:
    assert escape(HARMLESS[name]) == HARMLESS[name]
    assert one_line(HARMLESS[name].replace("\n\t", "")) == HARMLESS[name].replace("\n\t", "")


def test_every_control_format_and_separator_character_is_spelled_out_in_latin_text() -> None:
    # Signs of Arabic and of other scripts that have a shape, although Unicode counts them among the formats.
    visible = {*range(0x600, 0x606), 0x6DD, 0x70F, 0x890, 0x891, 0x8E2, 0x110BD, 0x110CD, *range(0x13430, 0x13440)}
    passed = [
        f"U+{code:04X}"
        for code in range(0x110000)
        if code not in visible
        and unicodedata.category(char := chr(code)) in ("Cc", "Cf", "Cs", "Zl", "Zp")
        and char not in "\n\t"
        and escape(f"a{char}b") == f"a{char}b"
    ]
    assert not passed


def test_a_question_for_approval_spells_out_joiners_too() -> None:
    assert spell("👩\u200d👩\ufe0f\u2800\n") == "👩\\u200d👩\\ufe0f\\u2800\\n"


def test_a_line_is_truncated() -> None:
    assert one_line("a\nb" * 100, 4) == "a\\nba… (296 more characters)"


@each("name", {**HOSTILE, **HARMLESS})
def test_json_keeps_its_value(name: str) -> None:
    text = {**HOSTILE, **HARMLESS}[name].replace("\ud83d", "")
    line = escape_json(json.dumps(text, ensure_ascii=False).encode())
    assert json.loads(line) == text
    assert not shapes(line.decode())


@each("name", {**HARMLESS})
def test_growing_text_does_not_show_where_it_was_cut(name: str) -> None:
    text = HARMLESS[name]
    for size in (1, 2, 3):
        block, taken = TextBlock("text"), ""
        for start in range(0, len(text), size):
            block.write(text[start : start + size])
            for row in block.take(None):
                taken += "".join(part for part, _ in row) + "\n"
            taken += "".join(part for part, _ in block.take_line_start())
        block.is_settled = True
        taken += "\n".join("".join(part for part, _ in row) for row in block.take(None))
        assert taken.rstrip() == text.rstrip()


def test_values_of_records_are_on_one_line(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loggers, "MAX_VALUE", 40)
    logger = get_logger("penstock.gateway")
    caplog.set_level(logging.INFO, "penstock.gateway")
    logger.info("%s %d %s", "a\n01:00:00 forged\x1b[2J", 7, ValueError("x\u200b\n" * 100))
    logger.info("%(name)s", {"name": "b\r\n"})
    lines = [record.getMessage() for record in caplog.records]
    assert lines[0].startswith("a\\n01:00:00 forged\\x1b[2J 7 x\\u200b\\nx")
    assert len(lines[0]) < 200
    assert lines[1] == "b\\r\\n"


def test_no_line_of_a_traceback_looks_like_a_record(caplog: pytest.LogCaptureFixture) -> None:
    logger = get_logger("penstock.asgi")
    try:
        raise ValueError("x\n01:00:00 forged\x1b[2J")
    except ValueError as error:
        logger.exception("request %s failed", "1", exc_info=error)
    lines = logging.Formatter("%(message)s").format(caplog.records[-1]).split("\n")
    assert lines[0] == "request 1 failed"
    assert all(line.startswith("  ") for line in lines[1:])
    assert "  01:00:00 forged\\x1b[2J" in lines


def test_a_rejection_spells_out_what_it_quotes() -> None:
    assert RejectedRequest(404, "x", "nothing at /a\x1b[2J\u200b").message == "nothing at /a\\x1b[2J\\u200b"


def test_a_console_escapes_whatever_is_printed() -> None:
    file = io.StringIO()
    console = SafeConsole(file=file, color_system=None, force_terminal=True, width=80)
    table = Table("a\x1b", min_width=40)
    table.add_row(Text("b\u202e"))
    for what in ("c\x9b", Text("d\u200b"), table):
        console.print(what)
    printed = file.getvalue()
    assert all(spelled in printed for spelled in ("a\\x1b", "b\\u202e", "c\\x9b", "d\\u200b"))
    assert not shapes(printed) - {"\n"}


# Every place that logs or prints.

SAFE_CALLS = {"escape", "spell", "one_line", "excerpt", "dumps", "count_text"}
"""What makes a text safe to print; `json.dumps` has ASCII only, `count_text` a number and a word."""
SAFE_LINES = {
    ("cli/commands/gateway.py", "click.echo(line)"): "`check_lines` escapes its parts, and then styles them",
    ("cli/__init__.py", "print"): "the name of our own dependency, where `escape` may not be importable",
    ("cli/commands/completion.py", "click.echo"): "a script of click, for a shell and not for a person",
}
MAY_LOG = {
    "loggers.py": "it makes the loggers",
    "model/logs.py": "it adds handlers, and its own logger is safe",
    "cli/printed_log.py": "its formatter escapes whole records, also those of other libraries",
    "transport/http/client_logs.py": "it adds a filter to loggers of other libraries",
}
MAY_PRINT = {
    "cli/screen/rows.py": "`write_rows` writes what a SafeConsole has rendered",
    "cli/screen/terminal.py": "`write_lines` escapes each line",
    "cli/screen/output.py": "an answer is escaped on a terminal; in a pipe it is what the model wrote",
    "cli/runs/run_table.py": "each line is escaped",
    "adapters/msgflux/agent_streamer.py": "text of the model is escaped on a terminal",
    "model/logs.py": "`printed_line` is one line, made where it is logged",
}


def trees() -> Iterator[tuple[str, ast.AST]]:
    for path in sorted(SOURCE.rglob("*.py")):
        yield path.relative_to(SOURCE).as_posix(), ast.parse(path.read_text(encoding="utf-8"))


def name_of(node: ast.expr) -> str:
    """The dotted name of a function that is called."""
    if isinstance(node, ast.Attribute):
        return f"{name_of(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def calls() -> Iterator[tuple[str, str, ast.Call]]:
    for file, tree in trees():
        for node in ast.walk(tree):
            if isinstance(node, ast.Call):
                yield file, name_of(node.func), node


def is_number(part: ast.FormattedValue) -> bool:
    """Whether a part of an f-string is formatted as a number."""
    spec = ast.unparse(part.format_spec) if part.format_spec is not None else ""
    return spec.strip("f'\"").endswith(("d", "g", ","))


def is_safe(node: ast.expr) -> bool:
    """Whether an expression is a constant, or a text of others that went through the one place."""
    match node:
        case ast.Constant():
            return True
        case ast.Call():
            name = name_of(node.func)
            inner = node.args[:1] if name == "click.style" else []
            return name.rpartition(".")[2] in SAFE_CALLS or (bool(inner) and all(map(is_safe, inner)))
        case ast.JoinedStr():
            parts = [value for value in node.values if isinstance(value, ast.FormattedValue)]
            return all(is_number(part) or is_safe(part.value) for part in parts)
        case ast.IfExp():
            return is_safe(node.body) and is_safe(node.orelse)
        case _:
            return False


def test_every_logger_shows_texts_of_others_safely() -> None:
    made = [file for file, name, _ in calls() if name.endswith("getLogger")]
    assert not {*made} - {*MAY_LOG}
    assert {*MAY_LOG} == {*made}, "the list names no others"


def test_no_value_is_part_of_the_template_of_a_record() -> None:
    methods = ("debug", "info", "warning", "error", "exception", "critical")
    wrong = [
        f"{file}:{node.lineno}"
        for file, name, node in calls()
        if name.rpartition(".")[0].strip("_") == "logger" and name.rpartition(".")[2] in methods
        if not (isinstance(node.args[0], ast.Constant | ast.Name)) and file != "agent/records.py"  # names a constant
    ]
    assert not wrong


def test_everything_that_the_command_line_prints_is_escaped() -> None:
    wrong = [
        f"{file}:{node.lineno}: {ast.unparse(node)[:100]}"
        for file, name, node in calls()
        if name in ("click.echo", "click.secho", "print") and node.args and not is_safe(node.args[0])
        if not any(file == place and ast.unparse(node).startswith(start) for place, start in SAFE_LINES)
    ]
    assert not wrong, "\n".join(wrong)


def test_consoles_are_safe_and_nobody_else_writes() -> None:
    consoles = [file for file, name, _ in calls() if name == "Console"]
    assert not consoles, "open_console makes them"
    writers = {
        file for file, name, _ in calls()
        if name.endswith((".file.write", "stdout.write", "stderr.write", "stdout.buffer.write", "out.writelines"))
    }  # fmt: skip
    assert writers <= {*MAY_PRINT}, writers


def test_the_rule_finds_what_is_not_escaped() -> None:
    for code, expected in {
        'click.echo("fixed")': True,
        "click.echo(escape(error))": True,
        "click.echo(f'{escape(a)} and {b}')": False,
        "click.echo(error)": False,
        "click.echo(click.style(one_line(name), bold=True))": True,
        "click.echo(click.style(name))": False,
    }.items():
        statement = ast.parse(code).body[0]
        assert isinstance(statement, ast.Expr)
        assert isinstance(statement.value, ast.Call)
        assert is_safe(statement.value.args[0]) is expected, code
    assert sys.version_info >= (3, 11)
