"""The bounds of fields: what an annotation of a request or a reply says about its values."""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

from quothwire.pointer import POINTER_MAX


class Range(NamedTuple):
    """The bounds of an integer, both included; of a list, those of its length."""

    low: int
    high: int


LATER: dict[str, Any] = {"later": True}
"""A field that came later: it is left out while it says nothing, so that an older broker understands."""

Number = Annotated[int, Range(0, 2**64 - 1)]
Pointer = Annotated[int, Range(0, POINTER_MAX)]
Ordinal = Annotated[int, Range(-1, 2**63 - 1)]
Positive = Annotated[int, Range(1, 2**63 - 1)]
Bounds = Annotated[list[Number], Range(4, 4)]
