"""A run in sync code, which the loop of another thread drives: what its reader, Ctrl-C and garbage collection see."""

from __future__ import annotations

from penstock.transport.threads.loop_thread import DriverLoop


def test_closing_an_unused_loop_leaves_no_moment_for_a_run_to_begin() -> None:
    class Watched:
        """A number of runs that is looked at only while the loop is locked."""

        def __bool__(self) -> bool:
            assert loop._lock.locked()
            return False

    loop = DriverLoop("penstock-driver")
    loop._runs = Watched()  # type: ignore[assignment]
    loop.close_unused()
