"""The text of an exception that user code raised: tools, hooks and validators."""

from __future__ import annotations

from penstock.jsontext.nearest import text_of

MAX_MESSAGE = 1000
"""The characters of a message that logs and readers get; `run.error` has the exception itself."""


def named_message(error: BaseException) -> str:
    """The name of the exception and its message, truncated. Its `__str__` is user code too, and may raise."""
    return _named(error, text_of(error)[:MAX_MESSAGE])


def whole_message(error: BaseException) -> str:
    """The name of the exception and its whole message, as the model reads it."""
    return _named(error, text_of(error))


def _named(error: BaseException, message: str) -> str:
    return ": ".join(filter(None, (type(error).__name__, message)))


def picklable(error: Exception) -> Exception:
    """The exception, or one with its name and message if it cannot be pickled and read again."""
    import pickle  # imported here: few programs pickle results

    try:
        pickle.loads(pickle.dumps(error))
    except Exception:  # noqa: BLE001  # the exception is of user code, and so are its methods
        return RuntimeError(named_message(error))
    return error
