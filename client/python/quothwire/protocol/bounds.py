"""The bounds of fields: what an annotation of a request or a reply says about its values."""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

from quothwire.errors import QuothError, error
from quothwire.pointer import POINTER_MAX


class Range(NamedTuple):
    """The bounds of an integer, both included; of a list, those of its length.

    above: the code of a request with an integer above them. Below them, it is ``bad_request``.
    """

    low: int
    high: int
    above: str = "too_large"

    def __str__(self) -> str:
        return f"from {self.low} to {self.high}"

    def refusal(self, name: str, value: int, written: str = "") -> QuothError:
        """The error of a request whose integer `name` lies outside. written: as it stands in the request."""
        code = self.above if value > self.high else "bad_request"
        return error(code, f"{name} is {written or value}: it must be an integer {self}", "nothing was done")


LATER: dict[str, Any] = {"later": True}
"""Metadata of a field that came later: it is left out at its default, so that an older broker understands."""

Number = Annotated[int, Range(0, 2**64 - 1)]
POINTERS = Range(0, POINTER_MAX, "bad_pointer")
Pointer = Annotated[int, POINTERS]
Ordinal = Annotated[int, Range(-1, 2**63 - 1)]
Positive = Annotated[int, Range(1, 2**63 - 1)]
Bounds = Annotated[list[Number], Range(4, 4)]
