"""What the operating system refused, as the error that a client is told.

A full disk and a process that is out of descriptors or memory pass: whoever was refused may try again. Of
anything else nobody knows what the disk holds.
"""

from __future__ import annotations

from pathlib import Path

from quothd.service.log_events import note
from quothlog.storage.disk_space import refused_growth
from quothlog.storage.filesystem import DISK_FULL, PROCESS_SHORT
from quothlog.storage.write_failure import WITHHELD, storage_failed
from quothwire.errors import QuothError, error

_SHORT_HINT = (
    "the broker is out of threads, descriptors or memory: try again, raise its limits, or lower workers_max"
)


def refusal(problem: Exception, what: str, place: Path) -> QuothError:
    """The error of something that was not done. what: the topic, and place: its folder, for who reads it."""
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


def breakdown(problem: Exception, what: str, place: Path) -> QuothError:
    """The error of something that was broken off. It may have been done, so it is never retryable."""
    told = refusal(problem, what, place)
    return error("storage_failed", told.text) if told.retryable else told


def complain(problem: Exception, topic: str, place: Path) -> None:
    """Write down what went wrong, with the way to it if nobody foresaw it."""
    told = refusal(problem, topic, place)
    withheld = isinstance(problem, OSError) and problem.errno in WITHHELD  # the path says it all
    foreseen = isinstance(problem, QuothError) or told.retryable or withheld
    note("topic_failed", None if foreseen else problem, topic=topic, problem=told)


def shortage(problem: Exception, what: str) -> QuothError:
    """The error of something for which there is no thread, no descriptor or no memory now."""
    return error("busy", f"{what}: {getattr(problem, 'strerror', None) or problem}", _SHORT_HINT)
