"""The golden bytes of tests/vectors, with their integers as numbers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from quothwire.protocol.messages import Operation

FOLDER = Path(__file__).parents[2] / "vectors"
NAMES = ("batches", "fast", "simple", "announcements")


_NAME_BEHIND = (Operation.LIST, Operation.STATUS)
"""Operations with a topic's name in `after`."""


def load(name: str) -> dict[str, Any]:
    """Read one file. Convert the fields that its `integers` names, which are in quotes, to numbers."""
    read: dict[str, Any] = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    integers = frozenset(read["integers"])
    for part, value in read.items():
        if part not in ("about", "integers", "version"):
            read[part] = [_numbered(vector, integers) for vector in value]
    return read


def _numbered(value: Any, integers: frozenset[str]) -> Any:
    if not isinstance(value, dict):
        return value
    if value.get("operation") in _NAME_BEHIND:
        integers -= {"after"}
    return {
        name: _as_int(inner) if name in integers else _numbered(inner, integers)
        for name, inner in value.items()
    }


def _as_int(value: Any) -> Any:
    if isinstance(value, list):
        return [_as_int(inner) for inner in value]
    assert isinstance(value, str), f"{value} has to be in quotes"
    return int(value)
