"""Records that follow from a number: tests in C and in Python make them and check them by the same rules."""

from __future__ import annotations

from typing import NamedTuple

LARGE_BYTES = 65_000


class Numbered(NamedTuple):
    """A record, as `tests/c/driver/records_by_number.h` makes it."""

    value: bytes
    key: bytes | None
    headers: dict[str, bytes]


def numbered(number: int) -> Numbered:
    """Return the record of a number."""
    letters = LARGE_BYTES if number % 997 == 500 else number * 7 % 200
    value = b"" if number % 11 == 7 else b"value %d " % number + b"x" * letters
    key = b"key %d" % (number % 10) if number % 3 else None
    if key and number % 13 == 6:
        key = b""
    return Numbered(value, key, {} if number % 5 else {"number": b"%d" % number, "é": b""})
