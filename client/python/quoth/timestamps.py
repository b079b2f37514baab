"""Timestamps as an application gives them: a pointer, a datetime, or text such as ``-15m``."""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import datetime

from quothwire import pointer as pointers
from quothwire.errors import error
from quothwire.pointer import POINTER_MAX

Timestamp = int | datetime | str

Start = int | Mapping[str, int]
"""A cursor, or one for each topic that is named; any other topic is read from its beginning."""


def as_pointer(given: Timestamp) -> int:
    """Return the pointer of a timestamp. Raises `RequestError` ``bad_pointer``."""
    if isinstance(given, datetime):
        return pointers.from_datetime(given)
    if isinstance(given, str):
        return pointers.parse(given, now())
    return pointers.check_pointer(given)


def now() -> int:
    """Return the time of this machine's clock as a pointer."""
    return time.time_ns() // 1_000


def cursor(after: int | None, since: Timestamp | None, default: int) -> int:
    """Return the cursor to begin with: the pointer `after`, or the one before `since`, which is included."""
    if since is not None and after is not None:
        raise error("bad_request", "after and since both say where to begin", "say one of them")
    if since is not None:
        return max(0, as_pointer(since) - 1)
    return default if after is None else pointers.check_pointer(after)


def start(after: Start | None, since: Timestamp | None, default: int | None) -> Start | None:
    """Return the cursor with which several topics begin, or one for each. Raises `RequestError`."""
    if isinstance(after, Mapping):
        return {topic: cursor(pointer, since, 0) for topic, pointer in after.items()}
    return default if after is None and since is None else cursor(after, since, 0)


def last_before(until: Timestamp | None) -> int:
    """Return the last pointer that is read up to a timestamp, which is excluded."""
    return POINTER_MAX if until is None else as_pointer(until) - 1
