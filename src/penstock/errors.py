"""The exceptions that penstock raises, grouped by who can fix the cause. Stages report bad input as events instead.
The errors about stores and their runs are defined in log/store.py.

PenstockError
├── UsageError                   the caller asked for something that cannot be done; also a ValueError
│   ├── UnknownNameError             a name that does not exist; has `name` and `known`
│   │   ├── UnknownWireError             ... of a wire
│   │   ├── UnknownDialectError          ... of a dialect
│   │   ├── UnknownOptionError           ... of an option
│   │   └── UnknownProviderError         ... of a provider
│   ├── MissingKeyError              no API key is set for the provider; has `provider` and `variables`
│   ├── AlreadyReadError             a stream is read a second time
│   ├── ReplayMissError              a recording has no response for the request; says what differs first
│   ├── RunExistsError               the id of a run is taken by a run that began with something else
│   └── UnknownRunError              there is no run with the id
├── ToolError                    raised by a tool that failed; the model reads the message
├── ArgumentsError               the arguments of a call do not fit the tool; names the fields
├── HookError                    `before_step` or `instructions` raised, took too long, or returned something else
├── StoreError                   the store of a log failed; `is_temporary` if the same may work later
│   └── DamagedRunError              the log of a run lacks events, or has some that cannot be read
├── LostRunError                 another process has taken over the run
├── ProgramError                 a tool or a hook ended a run that is read from its log; `kind` is the exception's type
├── GuardError                   the guard of an agent raised, took too long, or returned something else
├── OutputError                  a run or a response has no output; has `reason`, `why`, `error`, `text` and `result`
└── ProviderError                the provider or the connection failed before the response began
    ├── AuthenticationError          401, 403: the key is wrong, or lacks permission
    ├── NotFoundError                404: no such model or address
    ├── BadRequestError              other 4xx: the provider rejected the request
    │   └── ContextLengthError           ... because it is too long: 413, or a message that says so
    ├── RateLimitError               429: too many requests, or the quota is used up; has `retry_after`
    ├── OverloadedError              5xx, 408, 409, 425: the provider failed or is overloaded; try later
    ├── UnexpectedReplyError         the response is not one of a model: a redirect (set `base_url`), a web page
    ├── ConnectionFailed             no connection, or it broke before the response began
    └── TimedOut                     nothing arrived in time
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

MAX_LISTED = 10
"""How many names an error lists when none is similar to the unknown one; longer lists are only referred to."""


def type_name(value: object) -> str:
    """The type of a value with its article, for a message: `a str`, `an int`, `None`."""
    name = type(value).__name__
    return "None" if value is None else f"{'an' if name[0] in 'AEIOUaeiou' else 'a'} {name}"


class PenstockError(Exception):
    """The base class of all exceptions that penstock raises."""


class UsageError(PenstockError, ValueError):
    """The caller asked for something that cannot be done; the message says what to do instead."""


class UnknownNameError(UsageError):
    """A name that does not exist. `known` holds the names that do."""

    kind = "name"
    advice = ""
    """What to do when no known name is similar and there are too many to list."""

    def __init__(self, name: object, known: Iterable[str]) -> None:
        self.name = name
        self.known = tuple(known)
        super().__init__(self._problem() + self._advice())

    def _problem(self) -> str:
        return f"unknown {self.kind} {self.name!r}"

    def _advice(self) -> str:
        if suggestion := self._suggestion():
            return f", did you mean {suggestion!r}?"
        if len(self.known) <= MAX_LISTED:
            return f"; use one of: {', '.join(self.known)}"
        return f"; {self.advice}"

    def _suggestion(self) -> str:
        from difflib import get_close_matches  # imported here: it costs more than all of this module

        plain = {known.replace("_", "-"): known for known in self.known}
        similar = get_close_matches(str(self.name).lower().replace("_", "-"), plain, n=1, cutoff=0.65)
        return plain[similar[0]] if similar else ""

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.name, self.known)


class UnknownWireError(UnknownNameError):
    """There is no wire of that name."""

    kind = "wire"
    advice = "penstock.wires.WIRES lists all"


class UnknownDialectError(UnknownNameError):
    """There is no dialect of that name."""

    kind = "dialect"
    advice = "use 'xml', which any model can write"


class UnknownProviderError(UnknownNameError):
    """There is no provider of that name."""

    kind = "provider"
    advice = "the command `penstock models` lists all"


class UnknownOptionError(UnknownNameError):
    """There is no option of that name. `of` says what the option was for: a model, a request, an agent, a tool.

    Of the known options of a run, those that are not its `own` belong to its agent.
    """

    def __init__(self, name: object, known: Iterable[str], of: str, own: Iterable[str] = ()) -> None:
        self.of = of
        self.own = frozenset(own)
        self.advice = f"help({_OPTIONS_OF.get(of, 'penstock')}) lists all"
        super().__init__(name, known)

    def _problem(self) -> str:
        return f"{self.of} has no option {self.name!r}"

    def _suggestion(self) -> str:
        synonyms = (name for name in _SYNONYMS.get(str(self.name), ()) if name in self.known)
        return next(synonyms, "") or super()._suggestion()

    def _advice(self) -> str:
        elsewhere = _ELSEWHERE.get(str(self.name)) if self.of == "a model" else None
        if elsewhere:
            return f"; pass it to a request: {elsewhere}"
        if self.of == "a run":
            name = self.name if self.name in self.known else self._suggestion()
            if name in self.own:
                return f", did you mean {name!r}?"
            return f"; pass it to the agent: Agent(..., {name}=...)" if name else f"; {self.advice}"
        if self.name == "tool_executor":
            return "; pass it to the stream: agent.process_stream(tokens, tool_executor)"
        is_passed_on = "extra" in self.known and not self._suggestion()
        return super()._advice() + ("; options of a single provider go into extra" if is_passed_on else "")

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.name, self.known, self.of, self.own)


_OPTIONS_OF = {
    "a model": "penstock.Model",
    "a request": "penstock.Model.stream",
    "an agent": "penstock.Agent",
    "a run": "penstock.Agent.run",
}
"""Where the options are documented."""

_ELSEWHERE = {
    **dict.fromkeys(("tools", "functions", "tool_schemas"), "model.stream(messages, tools=...)"),
    **dict.fromkeys(("parallel", "parallel_tool_calls"), "model.stream(messages, parallel=...)"),
    **dict.fromkeys(("tool_choice",), "model.stream(messages, tool_choice=...)"),
}
"""Options that a model does not have, because they belong to a request."""

_SYNONYMS = {
    **dict.fromkeys(("system", "system_message", "instructions", "system_prompt"), ("instructions", "system_prompt")),
    **dict.fromkeys(("max_steps", "max_turns", "max_iterations", "recursion_limit"), ("limits",)),
    **dict.fromkeys(("max_completion_tokens", "max_output_tokens", "num_predict"), ("max_tokens",)),
    **dict.fromkeys(("timeout", "request_timeout"), ("timeouts", "timeout")),
    **dict.fromkeys(("max_retries", "num_retries"), ("retries",)),
    **dict.fromkeys(("functions", "function", "tool", "tool_schemas", "toolsets", "mcp_servers"), ("tools",)),
    **dict.fromkeys(("hooks", "middleware", "history_processors", "capabilities"), ("before_step",)),
    **dict.fromkeys(("guardrails", "input_guardrails", "output_guardrails"), ("guard",)),
    **dict.fromkeys(("response_format", "response_model", "output_schema"), ("output",)),
    **dict.fromkeys(("parallel_tool_calls",), ("parallel",)),
    **dict.fromkeys(("extra_body",), ("extra",)),
    **dict.fromkeys(("history", "message_history"), ("messages",)),
    **dict.fromkeys(("message", "input", "query", "question"), ("prompt",)),
    **dict.fromkeys(("context", "dependencies"), ("deps",)),
    **dict.fromkeys(("api_base", "endpoint", "host", "url"), ("base_url",)),
}
"""Options as other libraries name them, with the names that they have here."""


class MissingKeyError(UsageError):
    """The provider needs an API key, and none is set."""

    def __init__(self, provider: str, variables: tuple[str, ...]) -> None:
        self.provider = provider
        self.variables = variables
        names = " or ".join(variables)
        super().__init__(f"no API key for {provider}: set {names} in the environment, or pass Model(..., api_key=...)")

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.provider, self.variables)


class AlreadyReadError(UsageError):
    """A stream can be read only once."""


class ReplayMissError(UsageError):
    """A recording has no response for the request; the message names the first difference."""


class ToolError(PenstockError):
    """Raised by a tool that failed; the model reads the message unchanged."""


class ArgumentsError(PenstockError):
    """The arguments of a call do not fit the tool; the message names the fields, so that the model can correct them."""


class HookError(PenstockError):
    """A hook of an agent failed: it raised, took too long, or returned something that it may not."""


class ProgramError(PenstockError):
    """What the reader of a log gets for an exception of a tool or a hook that ended the run in another process.

    `kind` is the name of its type. The process in which it was raised has the exception itself.
    """

    def __init__(self, message: str, kind: str = "") -> None:
        self.message = message
        self.kind = kind
        super().__init__(message)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.message, self.kind)


class OutputError(PenstockError, ValueError):
    """A run or a response has no output, or none of the type that was asked for; the message says why.

    `text` is what the model wrote instead, if it wrote anything. Of a run, `reason` and `why` say how it ended, and
    `result` is its `RunResult`; until it has ended, `reason` is "not finished" and `result` is None.
    """

    def __init__(self, problem: str, text: str = "", *, reason: str = "", why: str = "", result: Any = None) -> None:
        self.problem = problem
        self.text = text
        self.reason = reason
        self.why = why
        self.result = result
        super().__init__(problem)

    @property
    def error(self) -> Exception | None:
        """The exception of the request that failed, if one did."""
        error: Exception | None = getattr(self.result, "error", None)
        return error

    def __reduce__(self) -> tuple[Any, ...]:
        return _output_error, (self.problem, self.text, self.reason, self.why, self.result)


def _output_error(problem: str, text: str, reason: str, why: str, result: Any) -> OutputError:
    return OutputError(problem, text, reason=reason, why=why, result=result)


class GuardError(PenstockError):
    """The guard of an agent raised, took too long, or returned something that is not a verdict.

    The message has nothing of the text that was checked; what the guard raised is the `__cause__`.
    """


class ProviderError(PenstockError):
    """The provider or the connection failed before the response began.

    `status` is the HTTP status (0 if there was none), `code` the provider's error code, `retryable` whether the same
    request may succeed later, `retry_after` the seconds that the provider asked to wait, `raw` the error body.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int = 0,
        code: str = "",
        retryable: bool = False,
        retry_after: float | None = None,
        request_id: str = "",
        raw: Any = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        self.code = code
        self.retryable = retryable
        self.retry_after = retry_after
        self.request_id = request_id
        self.raw = raw

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuilt, (type(self), self.__dict__)


def _rebuilt(kind: type[ProviderError], fields: dict[str, Any]) -> ProviderError:
    return kind(**fields)


class AuthenticationError(ProviderError):
    """The key is wrong, or lacks permission."""


class NotFoundError(ProviderError):
    """No such model or address."""


class BadRequestError(ProviderError):
    """The provider rejected the request; the message is the provider's."""


class ContextLengthError(BadRequestError):
    """The messages exceed the context window of the model."""


class RateLimitError(ProviderError):
    """Too many requests, or the quota is used up."""


class OverloadedError(ProviderError):
    """The provider failed or is overloaded."""


class UnexpectedReplyError(ProviderError):
    """The response is not one of a model: a redirect, a web page. `location` is where a redirect leads."""

    def __init__(self, message: str, *, location: str = "", **fields: Any) -> None:
        super().__init__(message, **fields)
        self.location = location


class ConnectionFailed(ProviderError):
    """No connection, or it broke before the response began."""


class TimedOut(ProviderError):
    """Nothing arrived in time."""
