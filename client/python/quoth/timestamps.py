"""Moments as an application gives them: a pointer, a datetime, or text such as ``-15m``."""

from __future__ import annotations

import time
from datetime import datetime

from quothwire import pointer as pointers
from quothwire.errors import error

Timestamp = int | datetime | str


def as_pointer(moment: Timestamp) -> int:
    """The pointer of a moment. Raises `RequestError` ``bad_pointer``."""
    if isinstance(moment, datetime):
        return pointers.from_datetime(moment)
    if isinstance(moment, str):
        return pointers.parse(moment, now())
    return pointers.check_pointer(moment)


def now() -> int:
    """This machine's clock as a pointer."""
    return time.time_ns() // 1_000


def cursor(after: int | None, since: Timestamp | None, default: int) -> int:
    """Where to begin: behind the pointer `after`, or at the moment `since`, which is included."""
    if since is not None and after is not None:
        raise error("bad_request", "after and since both say where to begin", "say one of them")
    if since is not None:
        return max(0, as_pointer(since) - 1)
    return default if after is None else pointers.check_pointer(after)
