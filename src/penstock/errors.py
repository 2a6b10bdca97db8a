"""What penstock raises, by whose fault it is. What arrives in a stream is never raised by a stage: it is an event.

PenstockError
├── UsageError                   the caller asked for something that cannot be done
│   ├── UnknownNameError             ... for something of a name that nothing has
│   │   ├── UnknownWireError             ... a wire
│   │   ├── UnknownDialectError          ... a dialect
│   │   ├── UnknownOptionError           ... an option
│   │   └── UnknownProviderError         ... a provider
│   ├── MissingKeyError              ... of a provider whose key is not set
│   ├── AlreadyReadError             ... to read a stream a second time
│   └── ReplayMissError              ... of a recording that has no answer to it
├── ToolError                    a tool failed, and tells the model so in these words
├── ArgumentsError               a model called a tool with arguments that do not fit it
└── ProviderError                the provider, or the way to it, refused or failed before the answer began
    ├── AuthenticationError          the key is wrong, or may not do this
    ├── NotFoundError                there is no such model or address
    ├── BadRequestError              the request is not to the provider's liking
    │   └── ContextLengthError           ... it is too long
    ├── RateLimitError               too many requests; `retry_after` says how long to wait
    ├── OverloadedError              the provider has trouble of its own; try later
    ├── UnexpectedReplyError         what came back is no answer: a redirect, a web page
    ├── ConnectionFailed             no connection, or it broke before the answer began
    └── TimedOut                     nothing came in time
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


class PenstockError(Exception):
    """The root of everything that penstock raises."""


class UsageError(PenstockError, ValueError):
    """The caller asked for something that cannot be done; the message says what can."""


class UnknownNameError(UsageError):
    """There is nothing of that name."""

    kind = "thing"

    def __init__(self, name: object, known: Iterable[str]) -> None:
        self.name = name
        self.known = tuple(known)
        super().__init__(f"no {self.kind} is called {name!r}{self._others(self._guess())}")

    def _guess(self) -> str:
        from difflib import get_close_matches  # imported here: it costs more than all of this module

        plain = {known.replace("_", "-"): known for known in self.known}
        close = get_close_matches(str(self.name).lower().replace("_", "-"), plain, n=1)
        return f", did you mean {plain[close[0]]!r}?" if close else ""

    def _others(self, guess: str) -> str:
        return f"{guess}; there are: {', '.join(self.known)}"


class UnknownWireError(UnknownNameError):
    """There is no wire of that name."""

    kind = "wire"


class UnknownDialectError(UnknownNameError):
    """There is no dialect of that name."""

    kind = "dialect"

    def _others(self, guess: str) -> str:  # the whole list is too long for a message
        return guess or "; use 'xml', which any model can write"


class UnknownProviderError(UnknownNameError):
    """There is no provider of that name."""

    kind = "provider"


class UnknownOptionError(UnknownNameError):
    """There is no option of that name; `of` is what was to have it: a model, a request, an agent, a tool."""

    def __init__(self, name: object, known: Iterable[str], of: str) -> None:
        self.kind = f"option of {of}"
        super().__init__(name, known)

    def _guess(self) -> str:
        elsewhere = [meant for meant in _CALLED_ELSEWHERE.get(str(self.name), ()) if meant in self.known]
        return f", did you mean {elsewhere[0]!r}?" if elsewhere else super()._guess()

    def _others(self, guess: str) -> str:
        extra = "; what only one provider has goes into extra" if "extra" in self.known else ""
        return super()._others(guess) + extra

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.name, self.known, self.kind.removeprefix("option of "))


_CALLED_ELSEWHERE = {
    **dict.fromkeys(("system", "system_message", "instructions", "system_prompt"), ("instructions", "system_prompt")),
    **dict.fromkeys(("max_steps", "max_turns", "max_iterations", "recursion_limit"), ("limits",)),
    **dict.fromkeys(("max_completion_tokens", "max_output_tokens", "num_predict"), ("max_tokens",)),
    **dict.fromkeys(("timeout", "request_timeout"), ("timeouts", "timeout")),
    **dict.fromkeys(("max_retries", "num_retries"), ("retries",)),
    **dict.fromkeys(("functions", "function", "tool"), ("tools",)),
    **dict.fromkeys(("parallel_tool_calls",), ("parallel",)),
    **dict.fromkeys(("extra_body",), ("extra",)),
    **dict.fromkeys(("history", "message_history"), ("messages",)),
}
"""What others call what we have, and our names for it."""


class MissingKeyError(UsageError):
    """The provider wants a key, and none is set."""

    def __init__(self, provider: str, variables: tuple[str, ...]) -> None:
        self.provider = provider
        self.variables = variables
        names = " or ".join(variables)
        super().__init__(f"no key for {provider}: set {names} in the environment, or give Model(..., api_key=...)")


class AlreadyReadError(UsageError):
    """A stream can be read once."""


class ReplayMissError(UsageError):
    """A recording has no answer to what is asked; the message says what differs first."""


class ToolError(PenstockError):
    """Raised by a tool: it failed, and the message is for the model to read, as it stands."""


class ArgumentsError(PenstockError):
    """The arguments of a call do not fit the tool; the message names the fields, for the model to mend its call."""


class ProviderError(PenstockError):
    """The provider, or the way to it, refused or failed before the answer began.

    `status` is the HTTP status (0 if there was none), `code` the provider's own name for the fault, `retryable` whether
    the same request may succeed later, `retry_after` the seconds that the provider asked to wait, `raw` what it sent.
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
    """The key is wrong, or may not do this."""


class NotFoundError(ProviderError):
    """There is no such model or address."""


class BadRequestError(ProviderError):
    """The request is not to the provider's liking; the message has its words."""


class ContextLengthError(BadRequestError):
    """The messages are too long for the model."""


class RateLimitError(ProviderError):
    """Too many requests, or the quota is used up."""


class OverloadedError(ProviderError):
    """The provider has trouble of its own."""


class UnexpectedReplyError(ProviderError):
    """What came back is no answer of a model: a redirect, a web page."""


class ConnectionFailed(ProviderError):
    """There is no connection, or it broke before the answer began."""


class TimedOut(ProviderError):
    """Nothing came in time."""
