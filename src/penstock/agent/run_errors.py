"""The errors of runs: from exceptions to events and back."""

from __future__ import annotations

import threading

from penstock.errors import PenstockError, ProgramError, ProviderError
from penstock.events import Error, ErrorOrigin
from penstock.jsontext.error_text import named_message
from penstock.log.run_writer import RunWriter
from penstock.log.store import LostRunError
from penstock.tools.interrupts import is_of_signal_handler
from penstock.transport.threads.worker_threads import RaisedInThreadError


def lease_error(log: RunWriter) -> LostRunError:
    """The error of a run whose lease has ended. Its log is closed, so that the lease is not renewed again."""
    log.close()
    run_id = log.claim.run_id
    return LostRunError(f"another worker may have taken over the run {run_id}: the lease of this one has ended")


def is_interrupt(error: BaseException) -> bool:
    """Whether this ends the program and is not for a run to handle: Ctrl-C, or the exit of a signal handler."""
    if isinstance(error, KeyboardInterrupt):
        return threading.current_thread() is threading.main_thread()
    return is_of_signal_handler(error)


def original(error: BaseException) -> BaseException:
    """What the code of the user raised, also in a thread."""
    is_wrapped = isinstance(error, RaisedInThreadError) and error.__cause__ is not None
    return error.__cause__ or error if is_wrapped else error


def as_exception(error: BaseException) -> Exception:
    """The error of a run: what ended a worker, such as `SystemExit`, must not end the program that reads it."""
    error = original(error)
    if isinstance(error, Exception):
        return error
    exception = RuntimeError(f"a tool or callback raised {named_message(error)}")
    exception.__cause__ = error
    return exception


def provider_error(error: Error) -> ProviderError:
    """The exception for an error that came in the stream."""
    return ProviderError(error.message, code=error.code, retryable=error.retryable, raw=error.raw)


def logged_error(error: Error) -> PenstockError:
    """The exception for the error that ended a run in another process, or earlier."""
    return provider_error(error) if error.origin == "provider" else ProgramError(error.message, error.code)


def error_event(error: BaseException, origin: ErrorOrigin = "program") -> Error:
    """The event for an exception; `origin` is that of one that no provider has caused."""
    kind = type(error).__name__
    if isinstance(error, ProviderError):
        return Error(error.message or kind, error.code or kind, error.retryable)
    message = (str(error) or kind) if isinstance(error, PenstockError) else named_message(error)
    return Error(message, kind, origin=origin)
