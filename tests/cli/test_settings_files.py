"""Settings of clients in files of all kinds: a file has its old settings merged with new ones, or is not changed."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml as pyyaml
from hypothesis import given
from hypothesis import strategies as st

from penstock.cli.settings_files.file import merged_text, write_file
from penstock.cli.settings_files.merging import OtherKind, Rows, is_same, merged
from penstock.errors import UsageError

CODEX = {
    "model": "qwen3",
    "model_provider": "penstock",
    "model_providers": {"penstock": {"name": "Penstock", "base_url": "http://x/v1", "wire_api": "responses"}},
}
TOML = {
    "a key in quotes": '"model" = "gpt-5"\n',
    "an inline table": 'model_providers = { mine = { name = "x" } }  # mine\n',
    "dotted keys in a table": '[model_providers]\nmine.name = "x"\n',
    "a line with a bracket in a text": 'notes = """\n[link](x)\nmodel = "no"\n"""\nmodel = "gpt"  # big\n',
    "lines with brackets in a list": "x = [\n[1],\n[2],\n]\nmodel = 'gpt'\n",
    "a literal text": "x = '''\n[model_providers.penstock]\nname = \"no\"\n'''\n",
    "arrays of tables": "[[a]]\nx = 1\n[[a]]\nx = 2\n[a.b]\ny = 1\n",
    "own settings in one line": '[model_providers]\npenstock = { name = "Mine", retries = 3 }\n',
    "own settings with more": '[model_providers.penstock]\nname = "Mine"  # mine\nretries = 3\n',
    "tables out of order": '[model_providers.a]\nname = "a"\n[t]\nx = 1\n[model_providers.b]\nname = "b"\n',
    "names of tables in quotes": '["model_providers"."mine"]\nname = "x"\n',
    "only comments": "# hello\n\n# there\n",
    "special numbers and times": "x = nan\ny = -inf\nd = 1979-05-27T07:32:00Z\nt = 07:32:00\nh = 0xff\n",
    "DOS lines": 'model = "x"\r\n[t]\r\ny = """a\r\nb"""\r\n',
    "a byte order mark": '\ufeffmodel = "x"\n',
    "no end of the last line": "[a]\nx = 1",
    "all on one place": 'model = "qwen3"\n',
}
REFUSED_TOML = {
    "a table that is there twice": "[a]\nx = 1\n[a]\ny = 2\n",
    "a table that is no table": "model_providers = 3\n",
    "a list of tables": "[[model_providers]]\nx = 1\n",
    "a name that is a table": "[model]\nx = 1\n",
    "not TOML": "{ not [ valid",
}


def read_toml(text: str) -> Any:
    return tomllib.loads(text.removeprefix("\ufeff").replace("\r\n", "\n"))


def comments(text: str) -> list[str]:
    return re.findall(r"(?:#|//) \w+", text)


@pytest.mark.parametrize("name", TOML)
def test_a_toml_file_has_its_old_settings_and_the_new_ones(name: str) -> None:
    old = TOML[name]
    new = merged_text(Path("config.toml"), old, CODEX)
    assert is_same(read_toml(new), merged(read_toml(old), CODEX))
    assert comments(new) == comments(old)
    assert ("\r\n" in old) == ("\r\n" in new)
    assert new.count("\n") == new.count("\r\n") or "\r\n" not in old
    assert new.startswith("\ufeff") == old.startswith("\ufeff")
    assert merged_text(Path("config.toml"), new, CODEX) == new


@pytest.mark.parametrize("name", REFUSED_TOML)
def test_a_toml_file_that_cannot_have_the_settings_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="add the settings above yourself"):
        merged_text(Path("config.toml"), REFUSED_TOML[name], CODEX)


def test_dotted_keys_stay_as_they_are() -> None:
    """The library writes them wrongly (0.15); a version that writes them right may change them."""
    old = 'model_providers.mine.name = "x"\nmodel = "z"\n'
    try:
        new = merged_text(Path("config.toml"), old, CODEX)
    except UsageError:
        return
    assert read_toml(new) == merged(read_toml(old), CODEX)


OPENCODE = {"model": "penstock/q", "provider": {"penstock": {"options": {"baseURL": "http://x//v1"}}}}
JSON = {
    "comments everywhere": '// top\n{\n  // a\n  "a": 1, // b\n  "provider": {"x": 1},\n  "z": [1] // c\n  // d\n}\n',
    "trailing commas and tabs": '{\n\t"a": 1,\n\t"provider": {\n\t\t"x": [1,],\n\t},\n}',
    "one line": '{"a": 1, "model": "other"}',
    "one line with a comment": '{"a": 1 /* b */}',
    "an empty table": "{}",
    "a comment in an empty table": "{\n  // nothing\n}\n",
    "DOS lines": '{\r\n  "a": 1\r\n}\r\n',
    "a byte order mark": '\ufeff{"a": 1}',
    "signs in texts": '{\n"u": "http://x//y, } /* no */ \\" // no", "provider": {}\n}',
    "nothing in the place of a table": '{"provider": null}',
    "escapes in names": '{\n  "m\\u006fdel": "old"\n}',
}
REFUSED_JSON = {
    "a key twice": '{"a": 1, "a": 2}',
    "a list": "[1]",
    "a text in the place of a table": '{"provider": "x"}',
    "not JSON": "{ not [ valid",
    "not a number": '{"a": NaN}',
    "very deep": "[" * 100_000,
}


def read_jsonc(text: str) -> Any:
    """Read JSON with comments; strings are split off first."""
    parts = re.split(r'("(?:[^"\\]|\\.)*")', text.removeprefix("\ufeff"))
    for place in range(0, len(parts), 2):
        if place and re.match(r"\s*(//|/\*)", parts[place]) is None:
            parts[place] = re.sub(r"//.*|/\*.*?\*/", "", parts[place])
        parts[place] = re.sub(r"//.*|/\*.*?\*/", "", parts[place])
    return json.loads(re.sub(r",(\s*[\]}])", r"\1", "".join(parts)))


@pytest.mark.parametrize("name", JSON)
@pytest.mark.parametrize("suffix", [".json", ".jsonc"])
def test_a_json_file_has_its_old_settings_and_the_new_ones(name: str, suffix: str) -> None:
    old, path = JSON[name], Path(f"settings{suffix}")
    new = merged_text(path, old, OPENCODE)
    if name != "signs in texts":  # which the reader of the test does not know
        assert read_jsonc(new) == merged(read_jsonc(old), OPENCODE)
    assert set(comments(old)) <= set(comments(new))
    assert new.startswith("\ufeff") == old.startswith("\ufeff")
    assert new.count("\n") == new.count("\r\n") or "\r\n" not in old
    assert merged_text(path, new, OPENCODE) == new


@pytest.mark.parametrize("name", REFUSED_JSON)
def test_a_json_file_that_cannot_have_the_settings_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="add the settings above yourself"):
        merged_text(Path("settings.json"), REFUSED_JSON[name], OPENCODE)


def test_a_changed_json_file_keeps_its_layout() -> None:
    old = '{\n\t// mine\n\t"a": [1, 2], // b\n\t"model": "x", // c\n}\n'
    assert merged_text(Path("a.jsonc"), old, {"model": "y", "n": {"k": 1}}) == (
        '{\n\t// mine\n\t"a": [1, 2], // b\n\t"model": "y", // c\n\t"n": {\n\t\t"k": 1\n\t},\n}\n'
    )


CONTINUE = {"models": Rows("name", ({"name": "q", "apiBase": "http://x/v1", "n": 1},)), "z": {"a": "no"}}
YAML = {
    "a list with indentation": "models:\n  - name: a  # mine\n    b: [1, 2]\n\n  # end\nname: x\n",
    "a list without": "models:\n- name: a\n  b: 2\n- name: q\n  mine: 1\n",
    "flow style": "{models: [{name: a}], k: v}\n",
    "anchors and merges": "base: &b {x: 1}\nz:\n  <<: *b\n  y: 2\n",
    "blocks of text": "t: |\n  models:\n  - name\n\nq: >-\n  folded\n  text\n",
    "DOS lines": "a: 1\r\nmodels:\r\n- name: q\r\n",
    "a byte order mark": "\ufeffa: 1\n",
    "nothing in the place of a list": "models:\nz: ~\n",
    "words and numbers of old YAML": "a: yes\nb: 012\nc: 1_000\nd: 0x1F\ne: 'no'\n",
    "only comments": "# mine\n# yours\n",
    "a long line": f"a: {'word ' * 60}end\n",
}
REFUSED_YAML = {
    "an alias for the list": "models: &m\n- name: a\nother: *m\n",
    "two documents": "a: 1\n---\nb: 2\n",
    "a key twice": "a: 1\na: 2\n",
    "a text": "just text\n",
    "another kind of list": "models: {a: 1}\n",
    "an unknown tag": "a: !mine 1\n",
    "not YAML": "{ not [ valid",
}


@pytest.mark.parametrize("name", YAML)
def test_a_yaml_file_has_its_old_settings_and_the_new_ones(name: str) -> None:
    old = YAML[name]
    new = merged_text(Path("config.yaml"), old, CONTINUE)
    assert pyyaml.safe_load(new) == merged(pyyaml.safe_load(old), CONTINUE)  # YAML 1.1, of another library
    assert comments(new) == comments(old)
    assert new.count("\n") == new.count("\r\n") or "\r\n" not in old
    assert merged_text(Path("config.yaml"), new, CONTINUE) == new


@pytest.mark.parametrize("name", REFUSED_YAML)
def test_a_yaml_file_that_cannot_have_the_settings_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="add the settings above yourself"):
        merged_text(Path("config.yaml"), REFUSED_YAML[name], CONTINUE)


def test_words_that_old_yaml_takes_for_booleans_are_in_quotes() -> None:
    for old in ("", "a: 1\n", "# mine\n"):
        text = merged_text(Path("a.yaml"), old, {"k": "no", "rows": Rows("name", ({"name": "on"},))})
        assert pyyaml.safe_load(text)["k"] == "no"
        assert pyyaml.safe_load(text)["rows"] == [{"name": "on"}]


# Random files.

NAMES = st.sampled_from(["a", "b", "model", "x y", "p.q", "é", "", "1", "//", '"', "#"])
TEXTS = st.text(st.sampled_from('ab "\\/#,{}[]:\n\r\té日\x7f'), max_size=8)
SCALARS = st.one_of(TEXTS, st.booleans(), st.integers(-9, 9), st.floats(allow_nan=False, allow_infinity=False))
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3), max_leaves=12
)
TABLES = st.dictionaries(NAMES, VALUES, max_size=4)
GAPS = st.sampled_from(["", " ", "\n", "\n  ", "\t", "/* , } */", "// c ] \n", "\n// {\n\n"])


def wanted_or_none(old: Any, content: Any) -> Any:
    try:
        return merged(old, content)
    except OtherKind:
        return None


def check(path: str, text: str, old: Any, content: Any, read: Any) -> None:
    """A file is refused, or has the merge of the settings; only a value of another kind is a reason to refuse."""
    wanted = wanted_or_none(old, content)
    try:
        new = merged_text(Path(path), text, content)
    except UsageError:
        assert wanted is None or not path.endswith("json"), "the settings fit, but were refused"
        return
    assert wanted is not None
    assert is_same(read(new), wanted)


def jsonc(draw: Any, value: Any) -> str:
    """The text of a value, with comments and trailing commas."""

    def gap() -> str:
        return str(draw(GAPS))

    if isinstance(value, dict):
        parts = [f"{gap()}{json.dumps(key)}{gap()}:{gap()}{jsonc(draw, inner)}{gap()}" for key, inner in value.items()]
        opening, closing = "{}"
    elif isinstance(value, list):
        parts = [f"{gap()}{jsonc(draw, inner)}{gap()}" for inner in value]
        opening, closing = "[]"
    else:
        return json.dumps(value, ensure_ascii=bool(draw(st.booleans())))
    end = f",{gap()}" if parts and draw(st.booleans()) else gap()
    return f"{opening}{','.join(parts)}{end}{closing}"


@given(st.data(), TABLES, TABLES)
def test_random_json_files_have_the_merge(data: st.DataObject, old: dict[str, Any], content: dict[str, Any]) -> None:
    text = f"{data.draw(GAPS)}{jsonc(data.draw, old)}{data.draw(GAPS)}"
    from penstock.cli.settings_files import json_file

    assert is_same(json_file.read(text), old), "the reader that checks the files is right"
    check("a.json", text, old, content, json_file.read)


TOML_SCALARS = SCALARS.filter(lambda value: not isinstance(value, str) or "\x7f" not in value)
TOML_TABLES = st.dictionaries(
    st.sampled_from(["a", "b", "model", "x y", "p.q", "é"]),
    st.recursive(
        TOML_SCALARS | st.lists(st.integers(0, 3), max_size=3),
        lambda inner: st.dictionaries(st.sampled_from(["a", "b", "c d"]), inner, max_size=3),
        max_leaves=10,
    ),
    max_size=4,
)


def toml_value(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(key)} = {toml_value(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, str) and "\r" not in value and '"' not in value and "\\" not in value:
        return f'"""\n{value}"""'  # over several lines
    return json.dumps(value)


def toml(draw: Any, table: dict[str, Any], place: str = "") -> str:
    """The text of a table: inner tables in one line, with dotted keys, or below a line of their own."""
    lines, tables = [], []
    for key, value in table.items():
        name = json.dumps(key)
        style = draw(st.sampled_from(["inline", "dotted", "table"])) if isinstance(value, dict) and value else "inline"
        if style == "inline":
            lines.append(f"{name} = {toml_value(value)}  # c")
        elif style == "dotted":
            lines += [f"{name}.{json.dumps(inner)} = {toml_value(value[inner])}" for inner in value]
        else:
            tables.append(f"\n[{place}{name}]\n{toml(draw, value, f'{place}{name}.')}")
    return "\n".join([*lines, *tables])


@given(st.data(), TOML_TABLES, TOML_TABLES)
def test_random_toml_files_have_the_merge(data: st.DataObject, old: dict[str, Any], content: dict[str, Any]) -> None:
    text = toml(data.draw, old)
    check("a.toml", text, tomllib.loads(text), content, tomllib.loads)


YAML_TABLES = st.dictionaries(
    st.sampled_from(["a", "b", "model", "x y", "é", "no"]),
    st.recursive(
        st.text(st.sampled_from("ab #:-'\"é\n"), max_size=6) | st.booleans() | st.integers(-9, 9),
        lambda inner: (
            st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "b", "c d"]), inner, max_size=3)
        ),
        max_leaves=10,
    ),
    max_size=4,
)


@given(YAML_TABLES, YAML_TABLES, st.booleans(), st.sampled_from([None, True, False]))
def test_random_yaml_files_have_the_merge(
    old: dict[str, Any], content: dict[str, Any], is_wide: bool, flow: bool | None
) -> None:
    from penstock.cli.settings_files import yaml_file

    text = pyyaml.safe_dump(old, default_flow_style=flow, width=20 if is_wide else 1000, allow_unicode=True)
    check("a.yaml", text, yaml_file.read(text), content, yaml_file.read)


# Writing.


def test_a_file_that_is_refused_is_not_touched(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    for data in (b"model_providers = 3\n", b"\xff\xfe"):
        path.write_bytes(data)
        before = path.stat().st_mtime_ns
        with pytest.raises(UsageError):
            [*write_file(path, CODEX)]
        assert (path.read_bytes(), path.stat().st_mtime_ns) == (data, before)
        assert [*tmp_path.iterdir()] == [path]


def test_a_copy_has_the_bytes_and_the_mode_of_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_bytes(b'\xef\xbb\xbfmodel = "x"\r\n')
    path.chmod(0o640)
    lines = [*write_file(path, CODEX)]
    copy = tmp_path / "config.toml.bak"
    assert copy.read_bytes() == b'\xef\xbb\xbfmodel = "x"\r\n'
    assert path.stat().st_mode == copy.stat().st_mode
    assert path.read_bytes().count(b"\n") == path.read_bytes().count(b"\r\n")
    assert any("config.toml.bak" in line for line in lines)
    assert [*write_file(path, CODEX)] == [f"{path} has these settings already"]


def test_settings_that_a_file_may_have_with_other_values_are_only_defaults(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text("name: Mine  # mine\n")
    [*write_file(path, CONTINUE, {"name": "Penstock", "version": "1"})]
    assert pyyaml.safe_load(path.read_text())["name"] == "Mine"
    assert pyyaml.safe_load(path.read_text())["version"] == "1"
