"""Turns what went wrong with a topic into the error for its clients, and into an event of the log.

A full disk and a process without descriptors or memory pass: the client may try again. After anything else
the content of the disk is unknown.
"""

from __future__ import annotations

from pathlib import Path

from quothd.service.log_events import note
from quothlog.storage.filesystem import DISK_FULL, PROCESS_SHORT
from quothlog.storage.write_failure import WITHHELD, refused_growth, storage_failed
from quothwire.errors import QuothError, error

_SHORT_HINT = (
    "the broker is out of threads, descriptors or memory: try again, raise its limits, or lower workers_max"
)


def as_error(problem: Exception, what: str, place: Path) -> QuothError:
    """The error of something that was not done. what: the topic. place: its folder, for the text."""
    match problem:
        case QuothError():
            return problem
        case OSError(errno=number) if number in DISK_FULL:
            found = refused_growth(problem)
            return error(found.code, f"{what}: {found.text}", found.hint)
        case OSError(errno=number) if number in PROCESS_SHORT:
            return shortage(problem, what)
        case OSError():
            return storage_failed(problem, place, what)
        case _:
            return error("internal", f"{what}: {str(problem) or 'an unexpected failure'}")


def broken_off(problem: QuothError) -> QuothError:
    """The error of something that was broken off. It may have been done, so it is never retryable."""
    return error("storage_failed", problem.text) if problem.retryable else problem


def log_failure(problem: Exception, topic: str, place: Path) -> QuothError:
    """Log what went wrong, with the traceback of a defect; returns the error for clients."""
    failure = as_error(problem, topic, place)
    withheld = isinstance(problem, OSError) and problem.errno in WITHHELD  # the path says it all
    foreseen = isinstance(problem, QuothError) or failure.retryable or withheld
    note("topic_failed", None if foreseen else problem, topic=topic, problem=failure)
    return failure


def shortage(problem: Exception, what: str) -> QuothError:
    """The error of something for which there is no thread, no descriptor or no memory now."""
    return error("busy", f"{what}: {getattr(problem, 'strerror', None) or problem}", _SHORT_HINT)
