"""The documentation: its code runs, and it describes everything public."""

from __future__ import annotations

import inspect
import re
import runpy
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, get_args, get_type_hints

import click
import pytest

import penstock
import penstock.testing
from penstock import ModelOptions, RequestOptions, errors
from penstock.cli.app import penstock as command_line
from penstock.dialects.registry import ALIASES as DIALECT_ALIASES
from penstock.dialects.registry import FAMILIES, dialects
from penstock.events import Fault, FinishReason, SealedBy
from penstock.providers import ALIASES as PROVIDER_ALIASES
from penstock.providers import PROVIDERS, Provider
from penstock.run.events import EndReason, RequestKind, ToolEnding
from penstock.testing import Loopback, ReceivedRequest, Reply, demo
from penstock.tools.options import ToolOptions
from penstock.wires import ALIASES, WIRES
from penstock.wires.shared.request import EFFORTS, OPTIONS
from tests import dialect_page, provider_page, quirks, readme
from tests.cases import each

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
SITE = {path.relative_to(DOCS).as_posix(): path for path in sorted(DOCS.rglob("*.md"))}
"""The pages that are built as a site."""
FILES = SITE | {
    path: ROOT / path for path in ("README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md", "examples/README.md")
}
PAGES = {name: path.read_text() for name, path in FILES.items()}
README, REFERENCE = PAGES["README.md"], PAGES["reference.md"]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)
PRINTED = re.compile(r"print\(.*\)  # (.*)")
"""A line that prints, with the output in a comment."""
CODE = {name: BLOCK.findall(page) for name, page in PAGES.items() if BLOCK.search(page)}
ALONE = {"README.md"}
"""The pages on which each block runs alone; on other pages, the blocks of a page share their names."""
PROGRAMS = {
    **{name: ["\n".join(blocks)] for name, blocks in CODE.items()},
    **{name: CODE[name] for name in ALONE},
}
WORDS = {name: set(re.findall(r"[\w-]+", page)) for name, page in PAGES.items()}

# -- the code runs -----------------------------------------------------------------------------------------------------


def answer(request: ReceivedRequest) -> Reply:
    """A reply for the code of the pages: a call in the text if the prompt describes that notation."""
    has_text_calls = "<function_calls>" in str(request.body)
    return Reply(dialect_page.example("anthropic_xml")) if has_text_calls else demo(request)


@pytest.fixture
def provider(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """All providers, played by a loopback server, with keys in the environment; and the files that the pages use."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # else litellm downloads a list of prices
    monkeypatch.setattr("penstock.providers.PROVIDERS", dict(PROVIDERS))  # a page may add to them
    for name in ("cat.png", "report.pdf"):
        (tmp_path / name).write_bytes(b"bytes")
    with Loopback(answer) as server:
        for row in PROVIDERS.values():
            monkeypatch.setenv(row.keys[0], "a-key-for-the-docs")
            monkeypatch.setenv(row.urls[0], server.url)
        yield


@pytest.mark.usefixtures("provider")
@pytest.mark.parametrize("page", CODE)
def test_the_code_of_the_pages_runs(page: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The blocks of a page run in order; a comment behind a `print` is what it prints."""
    names: dict[str, Any] = {}
    for number, block in enumerate(CODE[page], 1):
        names = {} if page in ALONE else names
        exec(compile(block, f"{page}, block {number}", "exec"), names)
        for test in [name for name in names if name.startswith("test_")]:
            names.pop(test)()
        output = capsys.readouterr().out
        for comment in PRINTED.findall(block):
            assert comment in output, (page, number)


def test_the_code_of_the_readme_finds_the_calls(capsys: pytest.CaptureFixture[str]) -> None:
    [code] = [code for code in CODE["README.md"] if "penstock.decode(" in code]
    exec(code, {})
    assert "→ weather({'city': 'Rome'})" in capsys.readouterr().out


def test_the_code_of_the_pages_uses_no_name_that_it_does_not_define(tmp_path: Path) -> None:
    """Also in branches that are not taken, and in functions that are not called."""
    for name, programs in PROGRAMS.items():
        for number, program in enumerate(programs, 1):
            (tmp_path / f"{name.replace('/', '_')}_{number}.py").write_text(program)
    command = [sys.executable, "-m", "ruff", "check", "--isolated", "--select", "F821", "--output-format", "concise"]
    done = subprocess.run([*command, tmp_path], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_make_targets_that_the_pages_name_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = {target for page in PAGES.values() for target in re.findall(r"`make ([a-z-]+)", page)}
    assert {"quick", "test"} <= named
    assert named - targets == set()


def test_make_demo_passes_its_arguments_on() -> None:
    assert 'make demo ARGS="--wire gemini"' in README
    command = ["make", "--dry-run", "--no-print-directory", "demo", "ARGS=--wire gemini"]
    done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT)
    assert done.stdout.endswith("demo --wire gemini\n")


# -- nothing is missing ------------------------------------------------------------------------------------------------


def test_the_reference_names_everything_public() -> None:
    public = set(penstock.__all__) | set(WIRES) | set(ALIASES) | set(OPTIONS) | set(EFFORTS)
    public |= {name for name, value in vars(errors).items() if isinstance(value, type) and issubclass(value, Exception)}
    public |= {event.type for event in get_args(penstock.StreamChunk)}
    public |= {*get_args(FinishReason), *get_args(SealedBy), *get_args(Fault)}
    public |= {*penstock.Timeouts.__struct_fields__, *penstock.Retries.__struct_fields__}
    for decoding in (penstock.Decoder, penstock.PartialJSON, penstock.StreamingToolCallAccumulator, penstock.Turn):
        public |= {name for name in vars(decoding) if not name.startswith("_")}
    assert public - WORDS["reference.md"] == set()


def test_the_reference_has_a_heading_for_each_name_and_keyword() -> None:
    """Events and errors are in tables; every other public name, and every keyword argument, has a heading."""
    headings = set(re.findall(r"`([^`]+)`", "\n".join(re.findall(r"^###+ (.*)$", REFERENCE, re.MULTILINE))))
    events = {event.__name__ for event in get_args(penstock.StreamEvent)}
    raised = {name for name in penstock.__all__ if _is_error(getattr(penstock, name))}
    assert set(penstock.__all__) - events - raised - headings == set()
    keywords = {f"Model({name}=…)" for name in _keywords(penstock.Model) - {"name"}}
    keywords |= {f"Agent({name}=…)" for name in _keywords(penstock.Agent) - {"model", "tools"}}
    keywords |= {f"tool({name}=…)" for name in get_type_hints(ToolOptions)}
    keywords |= set(get_type_hints(RequestOptions)) - set(get_type_hints(ModelOptions))
    assert keywords - headings == set()


def _is_error(value: Any) -> bool:
    return isinstance(value, type) and issubclass(value, Exception)


def _keywords(function: Any) -> set[str]:
    parameters = inspect.signature(function).parameters.values()
    return {parameter.name for parameter in parameters if parameter.kind is not parameter.VAR_KEYWORD}


HELD = (penstock.AgentRun, penstock.AsyncAgentRun, penstock.AsyncStream, penstock.Context, penstock.Decoder,
        penstock.PartialJSON, penstock.RunResult, penstock.Runs, penstock.Stream, penstock.Turn)  # fmt: skip
"""The classes whose objects users get and keep."""


@pytest.mark.parametrize("kind", HELD, ids=lambda kind: kind.__name__)
def test_the_reference_describes_each_member_of_what_users_get(kind: type) -> None:
    sections = re.split(r"^(?=### )", REFERENCE, flags=re.MULTILINE)
    [section] = [text for text in sections if text.startswith("###") and f"`{kind.__name__}`" in text.split("\n", 1)[0]]
    own = [base for base in kind.__mro__ if base.__module__.startswith("penstock")]
    members = {name for base in own for name in (*vars(base), *inspect.get_annotations(base)) if name[0] != "_"}
    assert members - set(re.findall(r"\w+", section)) == set()


TREE = re.compile(r"^([│ ]*)[├└]── (\w+)", re.MULTILINE)


@pytest.mark.parametrize("text", [REFERENCE, errors.__doc__ or ""], ids=["reference", "errors.py"])
def test_the_tree_of_errors_is_that_of_the_classes(text: str) -> None:
    """Each line of the tree stands below the error that it is a kind of."""
    path, drawn = ["PenstockError"], dict[str, str]()
    for indent, name in TREE.findall(text):
        path[len(indent) // 4 + 1 :] = [name]
        drawn[name] = path[-2]
    raised = {name: getattr(penstock, name) for name in penstock.__all__ if _is_error(getattr(penstock, name))}
    del raised["PenstockError"]
    assert drawn == {name: kind.__base__.__name__ for name, kind in raised.items()}


SIGNATURE = re.compile(r"\*\*`(\w+)(\([^`…]*\))`\*\*")
"""How the reference writes a signature, unless it leaves something out of it."""


def test_the_reference_has_the_signatures_of_the_code() -> None:
    written = dict(SIGNATURE.findall(REFERENCE))
    assert {"Decoder", "PartialJSON", "aconsume", "classify", "collect", "consume", "decode", "extract"} <= set(written)
    assert written == {name: _signature(getattr(penstock, name)) for name in written}


def _signature(function: Any) -> str:
    """Names and defaults, without types."""
    signature = inspect.signature(function)
    plain = [each.replace(annotation=each.empty) for each in signature.parameters.values()]
    bare = signature.replace(parameters=plain, return_annotation=signature.empty)
    return str(bare).replace("'", '"')


def test_the_page_of_testing_names_everything_that_is_for_tests() -> None:
    assert set(penstock.testing.__all__) - WORDS["testing.md"] == set()


def test_the_reference_names_every_command_and_option() -> None:
    for name, command in _commands(command_line):
        assert f"`penstock {name}" in REFERENCE or name == "runs list"
        options = {
            text for option in command.params if isinstance(option, click.Option) for text in option.opts if text
        }
        assert {option for option in options if f"`{option}" not in REFERENCE} == set(), name


def _commands(group: click.Group, path: str = "") -> Iterator[tuple[str, click.Command]]:
    """The commands of a group, and those of the groups in it."""
    for name in group.list_commands(click.Context(group)):
        command = group.get_command(click.Context(group), name)
        assert command is not None
        yield f"{path}{name}", command
        if isinstance(command, click.Group):
            yield from _commands(command, f"{path}{name} ")


def test_the_reference_has_the_table_of_providers() -> None:
    table = "".join(_provider(name, row) for name, row in PROVIDERS.items())
    assert table in REFERENCE, f"the table should be:\n{table}"


def _provider(name: str, row: Provider) -> str:
    called = _listed(name, *(alias for alias, own in PROVIDER_ALIASES.items() if own == name))
    keys = _listed(*row.keys) if row.needs_key else f"{_listed(*row.keys)} (not needed)"
    parts_of_url = list(dict.fromkeys(re.findall(r"{(\w+)}", row.base_url)))
    urls = _listed(*row.urls) + (f"; or {_listed(*parts_of_url)}" if parts_of_url else "")
    return f"| {called} | `{row.wire}` | {keys} | {urls} | {row.about} |\n"


def _listed(*names: str) -> str:
    return ", ".join(f"`{name}`" for name in names)


def test_there_are_more_than_the_pages_say() -> None:
    """Lower bounds: exact counts would have to be renewed by every commit that adds something."""
    tested = len(quirks.numbers()) - len(quirks.WITHOUT_VECTORS)
    assert len(PROVIDERS) > _least(r"[Mm]ore than (\d+) providers", "README.md")
    assert len(set(dialects()) - {"plain"}) > _least(r"[Mm]ore than (\d+)\s+dialects", "README.md")
    assert tested > _least(r"[Mm]ore than (\d+) numbered quirks", "README.md")
    assert tested > _least(r"[Mm]ore than (\d+) \[quirks\]", "index.md")


def _least(pattern: str, page: str) -> int:
    """The number that a page names as a lower bound."""
    [number] = re.findall(pattern, PAGES[page])
    return int(number)


def test_the_readme_has_the_tables_that_are_made_from_the_code() -> None:
    assert readme.providers() in README, "python -m tests.readme"
    assert readme.dialects() in README, "python -m tests.readme"


@pytest.mark.parametrize(("page", "heading"), [("README.md", "Benchmarks"), ("index.md", "Benchmarks")])
def test_a_page_has_no_measurement_that_the_page_of_performance_does_not_have(page: str, heading: str) -> None:
    _, _, measured = PAGES[page].partition(f"\n## {heading}\n")
    measured, _, _ = measured.partition("\n## ")
    rows = [line for line in measured.splitlines() if line.startswith("|")]
    assert len(rows) > 5
    assert [row for row in rows if row not in PAGES["performance.md"]] == []


def test_the_picture_of_the_early_start_has_the_times_that_were_measured() -> None:
    times = re.findall(r"\d\.\d\d s", (DOCS / "early-start.svg").read_text())
    assert len(times) == 2
    assert [time for time in times if f"| {time}" not in PAGES["performance.md"]] == []


def test_the_page_of_dialects_is_up_to_date() -> None:
    models = dialect_page.models_page()
    assert PAGES["dialects-by-model.md"] == models, "python -m tests.dialect_page models > docs/dialects-by-model.md"
    fresh = dialect_page.page()
    assert PAGES["dialects.md"] == fresh, "python -m tests.dialect_page > docs/dialects.md"
    assert {*dialects(), *DIALECT_ALIASES} - WORDS["dialects.md"] == set()
    assert set(dialect_page.FAMILY) == set(FAMILIES)
    assert set(dialect_page.WRITERS) == set(dialects())


@pytest.mark.parametrize(
    ("table", "name", "where"),
    [("WRITERS", "hermes", "WRITERS in tests"), ("EXAMPLES", "smol_code", "EXAMPLES in tests"),
     ("FAMILY", "named", "FAMILY in tests")],
)  # fmt: skip
def test_the_page_of_dialects_names_the_table_that_lacks_a_row(
    monkeypatch: pytest.MonkeyPatch, table: str, name: str, where: str
) -> None:
    monkeypatch.delitem(getattr(dialect_page, table), name)
    with pytest.raises(LookupError, match=rf"there is no entry for '{name}': add it to .*{where}"):
        dialect_page.page()


def test_the_readme_names_the_table_that_lacks_a_wire(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(readme.PROTOCOLS, "gemini")
    with pytest.raises(LookupError, match=r"there is no entry for 'gemini': add it to PROTOCOLS in tests/readme\.py"):
        readme.providers()


def test_the_page_of_providers_is_up_to_date() -> None:
    assert PAGES["providers.md"] == provider_page.page(), "python -m tests.provider_page > docs/providers.md"
    assert set(provider_page.OPTIONS) == set(OPTIONS)


@each("event", get_args(penstock.StreamEvent), ids=lambda event: event.__name__)
def test_the_page_of_events_describes_each(event: Any) -> None:
    """Under a heading of its own: its type, its fields, when it comes, and what to do with it."""
    _, _, rest = PAGES["events.md"].partition(f"\n### `{event.__name__}`\n")
    section = re.split(r"^##+ ", rest, maxsplit=1, flags=re.MULTILINE)[0]
    assert section.lstrip().startswith(f"`{event.type}`: ")
    assert [f"- **{what}:**" in section for what in ("When", "Carries", "Do")] == [True] * 3
    assert set(event.__struct_fields__) - set(re.findall(r"`(\w+)`", section)) == set()


def test_the_page_of_events_names_every_reason() -> None:
    reasons = {*get_args(FinishReason), *get_args(EndReason), *get_args(ToolEnding), *get_args(RequestKind)}
    assert reasons - WORDS["events.md"] == set()


def test_every_page_is_in_the_navigation_of_the_site_once() -> None:
    """Except the decisions: their index is in the navigation and links to each."""
    site = tomllib.loads((ROOT / "zensical.toml").read_text())
    decisions = {page for page in SITE if re.match(r"decisions/\d", page)}
    assert sorted(_pages(site["project"]["nav"])) == sorted(set(SITE) - decisions)
    linked = re.findall(r"\]\((\d[^)]+)\)", PAGES["decisions/README.md"])
    assert {f"decisions/{name}" for name in linked} == decisions
    numbers = list(map(int, re.findall(r"^\| (\d+) \|", PAGES["decisions/README.md"], re.MULTILINE)))
    assert numbers == list(range(1, len(numbers) + 1))


def _pages(entry: Any) -> Iterator[str]:
    match entry:
        case str():
            yield entry
        case list() | dict():
            for below in entry.values() if isinstance(entry, dict) else entry:
                yield from _pages(below)


@each("dialect", sorted(set(dialects()) - {"plain"}))
def test_the_calls_on_the_page_of_dialects_are_calls(dialect: str) -> None:
    parser = penstock.TextParser(dialect, tools=["weather"])
    [call] = penstock.extract([*parser.feed(dialect_page.example(dialect)), *parser.close()])
    unnamed = {"__arg1": "Rome"}  # what has no name in the text gets this one
    assert (call.name, call.arguments) == ("weather", unnamed if dialect == "langchain_xml" else {"city": "Rome"})


@each("page", PAGES)
def test_links_lead_somewhere(page: str) -> None:
    folder = FILES[page].parent
    for target in re.findall(r"\]\((?!https?://)([^)]+)\)", PAGES[page]):
        path, _, heading = target.partition("#")
        assert not path or (folder / path).exists(), target
        if not heading:
            continue
        text = (folder / path).read_text() if path else PAGES[page]
        assert heading in {_anchor(title) for title in re.findall(r"^#+ (.*)$", text, re.MULTILINE)}


@each("page", PAGES)
def test_the_files_that_a_page_names_exist(page: str) -> None:
    """Paths in backticks: from the root of the repository, and on the page of the architecture from the package.

    `toy` is the example of a wire that does not exist.
    """
    roots = [ROOT, ROOT / "src" / "penstock"] if page == "architecture.md" else [ROOT]
    named = re.findall(r"`((?:src|tests|docs|examples|benchmarks)/[\w./<>-]+)`", PAGES[page])
    if page == "architecture.md":
        named += re.findall(r"`([\w<>]+/[\w<>/]+(?:\.py|/))`", PAGES[page])
    named = [name for name in named if "toy" not in name]
    missing = [name for name in named if not any(any(root.glob(re.sub(r"<\w+>", "*", name))) for root in roots)]
    assert missing == []


def test_the_page_of_the_architecture_names_the_grammar_of_a_dialect() -> None:
    rows = re.findall(r"^\| `(\w+)\.py` \| .* \| ([^|]*) \|$", PAGES["architecture.md"], re.MULTILINE)
    grammars = {family: re.findall(r"`(\w+)`", names) for family, names in rows if family in FAMILIES}
    assert set(grammars) == set(FAMILIES)
    for family, names in grammars.items():
        assert set(names) <= set(import_module(f"penstock.dialects.grammars.{family}").DIALECTS)


def _anchor(heading: str) -> str:
    return re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")


# -- quirks ------------------------------------------------------------------------------------------------------------


def test_every_quirk_that_a_decoder_can_decide_has_a_vector() -> None:
    assert set(quirks.vectors_by_number()) == set(quirks.numbers()) - quirks.WITHOUT_VECTORS


def test_the_quirks_are_numbered_without_gaps() -> None:
    numbers = quirks.numbers()
    assert sorted(numbers) == list(range(1, len(numbers) + 1))


# -- the package index -------------------------------------------------------------------------------------------------


def test_the_readme_of_the_package_index_has_no_relative_link(monkeypatch: pytest.MonkeyPatch) -> None:
    hook: Any = ModuleType("hatchling")  # the build backend, which need not be installed here
    hook.MetadataHookInterface = hook.BuildHookInterface = object
    for name in ("metadata", "metadata.plugin", "metadata.plugin.interface",
                 "builders", "builders.hooks", "builders.hooks.plugin", "builders.hooks.plugin.interface"):  # fmt: skip
        monkeypatch.setitem(sys.modules, f"hatchling.{name}", hook)
    monkeypatch.setitem(sys.modules, "hatchling", hook)
    index_readme = runpy.run_path(str(ROOT / "hatch_build.py"))["index_readme"]
    relative = re.compile(r"\]\((?!https?:|#)")
    plain, linked = index_readme(README, ""), index_readme(README, "https://forge.example/us/penstock")
    assert not relative.search(plain)
    assert not relative.search(linked)
    assert "numbered quirks of real servers" in plain
    assert "](https://forge.example/us/penstock/blob/main/docs/quirks.md)" in linked
    assert "](https://forge.example/us/penstock/raw/main/docs/demo.svg)" in linked


def test_the_source_distribution_has_what_its_build_reads() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    included = project["tool"]["hatch"]["build"]["targets"]["sdist"]["include"]
    assert {"/README.md", "/docs", "/hatch_build.py"} <= set(included)


# -- the changelog -----------------------------------------------------------------------------------------------------

VERSIONS = re.findall(r"^## (.*?)\n(.*?)(?=^## |\Z)", PAGES["CHANGELOG.md"], re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize(("version", "text"), VERSIONS, ids=[version for version, _ in VERSIONS])
def test_a_version_begins_with_its_highlights_and_what_breaks(version: str, text: str) -> None:
    titles = re.findall(r"^### (.*)$", text, re.MULTILINE)
    is_first = (version, text) == VERSIONS[-1]
    assert titles[: 2 - is_first] == ["Highlights", "Breaking"][: 2 - is_first]
    highlights = text.split("### ")[1].splitlines()[1:]
    assert 1 <= len([line for line in highlights if line]) <= 10


# -- coming from other libraries ---------------------------------------------------------------------------------------

FRAMEWORKS = ("pydantic-ai", "langchain", "openai-agents")
EVERYDAY = (
    "Structured output", "Partial output while it streams", "Dependencies", "Instructions that change",
    "Errors and retries", "Approval and deferred tools", "MCP servers", "Shorter histories", "Limits",
    "Fallback models", "Sub-agents and hand-offs", "Guardrails", "Tracing", "Tests with fake models",
    "Message histories", "Images and files", "Durable execution", "Serving a UI",
)  # fmt: skip
"""What users of these libraries need every day."""


@pytest.mark.parametrize("library", FRAMEWORKS)
def test_each_everyday_feature_of_a_framework_has_code_of_ours(library: str) -> None:
    _, *sections = re.split(r"^## ", PAGES[f"coming-from/{library}.md"], flags=re.MULTILINE)
    titles = [section.partition("\n")[0] for section in sections]
    assert titles == [*EVERYDAY, "What is missing here"]
    assert [title for title, section in zip(titles[:-1], sections, strict=False) if not BLOCK.search(section)] == []
