"""Pointers: 56-bit integers that are identity, time and cursor.

A pointer counts microseconds since 1970-01-01 UTC, so it converts to a datetime without loss. 0 stands before
every record. A batch of n records takes n consecutive pointers.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import lru_cache

from quothwire.errors import error, shown
from quothwire.text.quantity import is_span, parse_span

POINTER_MAX = 2**56 - 1
"""The 31st of May of the year 4253."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def check_pointer(value: int) -> int:
    """Return the value if it is a pointer, or raise `RequestError` with code ``bad_pointer``."""
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= POINTER_MAX:
        raise error("bad_pointer", f"{shown(value)} is not a pointer: an integer from 0 to {POINTER_MAX}")
    return value


def to_datetime(pointer: int) -> datetime:
    """Return the pointer's time, UTC, exact to the microsecond."""
    return _EPOCH + timedelta(microseconds=check_pointer(pointer))


def from_datetime(time: datetime) -> int:
    """Return the pointer of a time. Raises ``bad_pointer`` for a time without a zone."""
    if time.utcoffset() is None:
        raise error(
            "bad_pointer", f"{time.isoformat()} has no time zone", "use datetime.now(UTC) or tzinfo=UTC"
        )
    return check_pointer((time - _EPOCH) // _MICROSECOND)


def to_text(pointer: int) -> str:
    """Format the pointer's time as ISO 8601 with six decimals: ``2026-01-02T03:04:05.000001Z``."""
    return to_datetime(pointer).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def time_text(pointer: int) -> str:
    """Format a pointer's time: `to_text` for a million records, which lie in few seconds."""
    second, microsecond = divmod(pointer, 1_000_000)
    return f"{_second_text(second)}.{microsecond:06d}Z"


@lru_cache(maxsize=1_000)
def _second_text(second: int) -> str:
    return to_text(second * 1_000_000)[:19]


def parse(text: str, now: int) -> int:
    """Read a timestamp as a person types it.

    A timestamp is a decimal pointer, an ISO 8601 date or time (UTC unless it has a zone), ``now``, or a span
    before ``now`` such as ``-15m`` and ``-1d3h``. now: the pointer of the current time. A time before 1970 is
    0. Raises `RequestError` ``bad_pointer`` that says which part of a date or span is wrong.
    """
    text = text.strip()
    if text.isascii() and text.isdigit():
        return check_pointer(int(text.lstrip("0")[:20] or "0"))
    if text == "now":
        return check_pointer(now)
    if text.startswith("-") and is_span(text[1:]):
        return max(0, check_pointer(now) - round(parse_span(text[1:]) * 1e6))
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        from quothwire.text.timestamp_text import timestamp_error  # takes time to load; only mistakes need it

        raise timestamp_error(text) from None
    time = time if time.tzinfo else time.replace(tzinfo=UTC)
    if time > to_datetime(POINTER_MAX):
        raise error(
            "bad_pointer", f"{text!r} lies behind the last pointer", f"at most {to_text(POINTER_MAX)}"
        )
    return from_datetime(max(_EPOCH, time))
