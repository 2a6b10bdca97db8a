"""Escapes in results: if the text of a result could contain the marks of results, it could forge another result.

Only marks are escaped, so that all other text reaches the model unchanged: the tags around the text, brackets such as
`[TOOL_RESULTS]`, headings such as `Observation:`, and the control tokens of any dialect. One character of each becomes
an HTML escape, or a JSON escape in a JSON string.
"""

from __future__ import annotations

import re

_CONTROL = (
    r'<(?=\|[\w:./▁"-]{1,64}\|?>|[\w:/]{1,64}\|>|｜[^｜<>\n]{1,64}｜>'
    r"|/?(?:start|end)_(?:of_turn|function_\w{1,32})>|/?(?:s|bos|eos|escape)>)"
)
"""Control tokens: `<|end|>`, `<|tool_response>`, `<turn|>`, `<｜User｜>`, `<end_of_turn>`, `<eos>`."""
_TAG = re.compile(r"<(/?)([A-Za-z_]\w*)[^<>]*>|\{(?:text|quoted|results)\}")
_BRACKETS = re.compile(r"\[/?([A-Z_]+)\]")


def result_marks(*templates: str, headings: tuple[str, ...] = ()) -> re.Pattern[str]:
    """Returns a pattern for the marks in results with these templates; the last character of a match is escaped.

    `headings` are patterns of headings.
    """
    tags = sorted({name for template in templates for name in _tags_around_text(template)})
    brackets = sorted({name for template in templates for name in _BRACKETS.findall(template)})
    patterns = [_CONTROL, *headings]
    if tags:
        patterns.append(rf"<(?=\s*/?\s*(?:{'|'.join(tags)})\b)")
    if brackets:
        patterns.append(rf"\[(?=\s*/?\s*(?:{'|'.join(brackets)})\s*\])")
    return re.compile("|".join(patterns), re.IGNORECASE)


def _tags_around_text(template: str) -> list[str]:
    """Returns the tags that are open in a template where the text of a result is, or where all results are."""
    names: list[str] = []
    for tag in _TAG.finditer(template):
        if tag[2] is None:
            break
        if not tag[1]:
            names.append(tag[2])
        elif tag[2] in names:
            names.remove(tag[2])
    return names


def escaped(text: str, marks: re.Pattern[str]) -> str:
    """Returns the text with HTML escapes in its marks."""
    return marks.sub(lambda mark: f"{mark[0][:-1]}{_HTML.get(mark[0][-1]) or f'&#{ord(mark[0][-1])};'}", text)


def escaped_json(json: str, marks: re.Pattern[str]) -> str:
    """Returns a JSON string with JSON escapes in its marks."""
    return marks.sub(lambda mark: f"{mark[0][:-1]}\\u{ord(mark[0][-1]):04x}", json)


_HTML = {"<": "&lt;"}
