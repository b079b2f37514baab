"""The bounds of the fields of requests and replies, which stand in their annotations."""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

from quothwire.errors import QuothError, error
from quothwire.pointer import POINTER_MAX


class Range(NamedTuple):
    """The bounds of an integer, both included, or of the length of a list.

    above: the error code for a request with a larger integer. The one for a smaller integer is
    ``bad_request``.
    """

    low: int
    high: int
    above: str = "too_large"

    def __str__(self) -> str:
        return f"from {self.low} to {self.high}"

    def error_for(self, name: str, value: int, written: str = "") -> QuothError:
        """Make the error for a request whose integer `name` lies outside. written: its text there."""
        code = self.above if value > self.high else "bad_request"
        return error(code, f"{name} is {written or value}: it must be an integer {self}", "nothing was done")


LATER: dict[str, Any] = {"later": True}
"""Metadata of a field that was added later. It is not sent at its default, so that an older broker accepts
the message."""

Number = Annotated[int, Range(0, 2**64 - 1)]
POINTERS = Range(0, POINTER_MAX, "bad_pointer")
Pointer = Annotated[int, POINTERS]
Ordinal = Annotated[int, Range(-1, 2**63 - 1)]
Positive = Annotated[int, Range(1, 2**63 - 1)]
Bounds = Annotated[list[Number], Range(4, 4)]
