"""Values and malformed calls, beyond the text vectors: repaired arguments, raw arguments, and error messages."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from penstock import StreamChunk, StreamingXMLParser, TextParser, ToolCallInvalid
from penstock.dialects.reading.schema import Tools
from penstock.dialects.reading.tagged_values import MAX_INDENT
from penstock.dialects.reading.text_call import TextCall
from tests.growth import assert_linear
from tests.texts import parse, text_of

MAIL = {
    "name": "mail",
    "parameters": {"type": "object", "properties": {"to": {"type": "string"}, "copies": {"type": "integer"}}},
}


def invalid_call(dialect: str, text: str) -> ToolCallInvalid:
    calls = [event for event in parse(TextParser(dialect, [MAIL]), [text]) if isinstance(event, ToolCallInvalid)]
    assert len(calls) == 1
    return calls[0]


class TestGuesses:
    @pytest.mark.parametrize(
        ("dialect", "text"),
        [
            ("xml", '<invoke name="mail"><parameter name="to">ann\n<parameter name="copies">2</parameter></invoke>'),
            ("qwen3_coder", "<function=mail>\n<parameter=to>\nann\n<parameter=copies>\n2\n</parameter>\n</function>"),
            ("glm45", "<tool_call>mail\n<arg_key>to</arg_key><arg_value>ann\n"
             "<arg_key>copies</arg_key><arg_value>2</arg_value></tool_call>"),
            ("xml", '<invoke name="mail">\n      <parameter name="to">ann\n      <parameter name="copies">2</parameter>'
             "\n</invoke>"),
            ("qwen3_coder", "<function=mail>\n  <parameter=to>ann\r\n\t<parameter=copies>2</parameter>\n</function>"),
            ("glm45", "<tool_call>mail\n  <arg_key>to</arg_key>\n  <arg_value>ann\n  <arg_key>copies</arg_key>\n"
             "  <arg_value>2</arg_value>\n</tool_call>"),
        ],
    )  # fmt: skip
    def test_a_missing_end_tag_gives_repaired_arguments(self, dialect: str, text: str) -> None:
        call = invalid_call(dialect, text)
        assert (call.why, call.repaired) == ("malformed", {"to": "ann", "copies": 2})
        assert "'to'" in call.message

    def test_the_message_says_what_to_write(self) -> None:
        call = invalid_call("xml", '<invoke name="mail"><parameter name="to">ann</parameter><prm>2</prm></invoke>')
        assert (
            call.message
            == "it is unclear where the value of 'to' ends, because it contains tags: end it with '</parameter>'"
        )
        assert call.repaired is None

    def test_the_message_names_a_key_that_occurs_only_in_a_value(self) -> None:
        call = invalid_call(
            "xml", '<invoke name="mail"><parameter name="to">ann<parameter name="copies">2</parameter></invoke>'
        )
        why = "the tag of 'copies' occurs only in it"
        assert call.message == f"it is unclear where the value of 'to' ends, because {why}: end it with '</parameter>'"
        assert call.repaired is None

    @pytest.mark.parametrize(("blanks", "to"), [(MAX_INDENT - 1, "ann"), (MAX_INDENT, None)])
    @pytest.mark.parametrize("size", [1, 7, 10_000])
    def test_indentation_is_limited(self, blanks: int, to: str | None, size: int) -> None:
        indent = "\n" + " " * blanks
        text = f'<invoke name="mail"><parameter name="to">ann{indent}<parameter name="copies">2</parameter></invoke>'
        call = parse(TextParser("xml", [MAIL]), [text[at : at + size] for at in range(0, len(text), size)])[-1]
        assert isinstance(call, ToolCallInvalid)
        assert (call.repaired or {}).get("to") == to

    def test_values_that_are_equal_only_in_python_are_different(self) -> None:
        tool = {"name": "f", "parameters": {"type": "object", "properties": {"a": {"type": ["integer", "boolean"]}}}}
        text = "<function=f><parameter=a>1</parameter><parameter=a>true</parameter></function>"
        event = parse(TextParser("qwen3_coder", [tool]), [text])[-1]
        assert isinstance(event, ToolCallInvalid)
        assert event.arguments_raw == '{"a":1,"a":true}'

    def test_two_different_values_of_an_argument_have_no_repair(self) -> None:
        text = '<invoke name="mail"><parameter name="to">ann</parameter><parameter name="to">bob</parameter></invoke>'
        call = invalid_call("xml", text)
        assert (call.message, call.repaired) == ("the argument 'to' is given twice", None)
        assert call.arguments_raw == '{"to":"ann","to":"bob"}'

    def test_one_ambiguous_doubt_prevents_a_repair(self) -> None:
        out: list[StreamChunk] = []
        call = TextCall(out, 0, "1", "mail", "text:xml", Tools([MAIL]).schema("mail"))
        call.doubt("first", is_unambiguous=True)
        call.doubt("second")
        call.end_keys()
        call.seal()
        assert isinstance(out[-1], ToolCallInvalid)
        assert (out[-1].message, out[-1].repaired) == ("first", None)


class TestBrokenTags:
    @pytest.mark.parametrize(
        ("dialect", "text", "raw"),
        [
            (
                "xml",
                '<invoke name="mail"><parameter name="to"=>ann</parameter></invoke>',
                '<parameter name="to"=>ann</parameter>',
            ),
            ("xml", '<invoke name="mail"><parameter name="t', '<parameter name="t'),
            ("minimax_m2", '<minimax:tool_call><invoke name="mail"><parameter name=a"to">', '<parameter name=a"to">'),
            (
                "qwen3_coder",
                "<function=mail><parameter=to\nann</parameter></function>",
                "<parameter=to\nann</parameter>",
            ),
            ("glm45", "<tool_call>mail<arg_key>to</arg_key>: ann</tool_call>", "<arg_key>to</arg_key>: ann"),
            ("glm45", "<tool_call>mail<arg_key>to", "<arg_key>to"),
        ],
    )
    def test_a_malformed_tag_is_in_the_raw_arguments(self, dialect: str, text: str, raw: str) -> None:
        assert invalid_call(dialect, text).arguments_raw == raw

    def test_a_wrong_escape_names_the_escapes_that_people_write(self) -> None:
        call = invalid_call("hermes", r'<tool_call>{"name":"mail","k\q":1,"arguments":{}}</tool_call>')
        signs = ('"', "\\", "/", "b", "f", "n", "r", "t", "u")
        assert call.message == f"expected {' or '.join(map(repr, signs))}"  # control characters may follow, too

    def test_a_cut_element_is_in_the_raw_arguments(self) -> None:
        assert invalid_call("cline_xml", "<mail><to>ann</to><cc>bob").arguments_raw == '{"to":"ann","cc":"bob'

    @pytest.mark.parametrize(
        ("dialect", "text", "message"),
        [
            ("xml", '<invoke name="mail"><parameter name="to">ann</parameter>\n', "'<parameter ' or '</invoke>'"),
            ("qwen3_coder", "<function=mail><parameter=to>ann</parameter>\n", "'<parameter=' or '</function>'"),
            (
                "glm45",
                "<tool_call>mail<arg_key>to</arg_key><arg_value>ann</arg_value>",
                "'<arg_key>' or '</tool_call>'",
            ),
        ],
    )
    def test_a_cut_call_says_what_was_expected(self, dialect: str, text: str, message: str) -> None:
        assert invalid_call(dialect, text).message == f"the text ended where {message} was expected"

    @pytest.mark.parametrize("end", ["</invok", "<", "\n</", "<parameter"])
    def test_half_a_tag_at_the_end_is_not_a_value(self, end: str) -> None:
        call = invalid_call("xml", f'<invoke name="mail"><parameter name="to">ann</parameter>{end}')
        assert (call.why, call.arguments_raw) == ("cut", '{"to":"ann"' + end.strip())


class TestTime:
    @pytest.mark.parametrize(
        "piece",
        [
            '<invoke name="f"> ',
            '<invoke name="f"><parameter name="to">',
            "</parameter></invoke>" + " " * 30,
            '\n<parameter name="to">',
            "</function_calls><function_calls>",
            'x <parameter name="copies">',
            "\n" + " " * 30,
            " \r",
        ],
    )
    def test_tags_in_a_value_take_linear_time(self, piece: str) -> None:
        def prepare(count: int) -> Callable[[], object]:
            text = '<function_calls><invoke name="mail"><parameter name="to">' + piece * count
            pieces = [text[at : at + 7] for at in range(0, len(text), 7)]
            return lambda: parse(TextParser("xml", [MAIL]), pieces)

        assert_linear(prepare, 500)


class TestStreamingXMLParser:
    @pytest.mark.parametrize("size", [1, 5, 1000])
    def test_calls_in_reasoning_are_not_calls(self, size: int) -> None:
        text = '<think>Or <invoke name="mail"></invoke>?</think>No need. <invoke name="now"></invoke>'
        parser = StreamingXMLParser(reasoning=True)
        outputs = [parser.feed(text[at : at + size]) for at in range(0, len(text), size)] + [parser.close()]
        assert "".join(visible for visible, _ in outputs) == "No need. "
        assert [call.name for _, calls in outputs for call in calls] == ["now"]
        assert parser.reasoning == 'Or <invoke name="mail"></invoke>?'

    def test_without_the_option_reasoning_is_text(self) -> None:
        parser = StreamingXMLParser()
        text, calls = parser.feed('Use the <think> tag. <thinking>Hm.\n<invoke name="now"></invoke>')
        assert (text, calls, parser.reasoning) == ("Use the <think> tag. <thinking>Hm.\n", [], "")
        text, calls = parser.close()  # the reasoning was never closed, so the call is one
        assert (text, [call.name for call in calls]) == ("", ["now"])


def test_a_call_after_a_guess_is_still_read() -> None:
    text = '<invoke name="mail"><parameter name="to">a</parameter><prm></prm></invoke><invoke name="mail"></invoke> end'
    events = parse(TextParser("xml", [MAIL]), [text])
    assert [event.type for event in events if event.type.startswith("tool_call")][-1] == "tool_call"
    assert text_of(events) == " end"
