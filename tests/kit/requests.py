"""Every request of the fast protocol, as its declaration and as PROTOCOL.md's table of operations have it."""

from __future__ import annotations

import re
from dataclasses import MISSING, Field, fields
from pathlib import Path
from typing import Any

from quothwire.dialogue import REQUESTS, Request
from quothwire.message import Operation

PROTOCOL = Path(__file__).parents[2] / "client" / "PROTOCOL.md"

SAMPLES: dict[str, Any] = {
    "before": 2**56 - 1,
    "application": "loader",
    "version": 3,
    "part": 0,
    "attempt": 7,
    "parts": 0,
}
"""A value for each field that is required: one that would do something."""


def example(operation: Operation) -> Request:
    """A request with its required fields and the defaults of the others."""
    kind = REQUESTS[operation]
    made: Request = kind(**{name: SAMPLES[name] for name in required(operation)})
    return made


def required(operation: Operation) -> list[str]:
    """The fields without which there is no such request, as the message declares them."""
    return [field.name for field in fields(REQUESTS[operation]) if _is_required(field)]


def documented(operation: Operation) -> dict[str, bool]:
    """The fields of an operation in the table of PROTOCOL.md, each with whether it is required."""
    rows = dict(re.findall(r"^\| ([0-9]+) `\w+` \| ([^|]*) \|", PROTOCOL.read_text(), re.MULTILINE))
    found = re.findall(r"`(\w+)`((?:(?!`).)*)", rows[str(int(operation))])
    return {name: "=" not in said for name, said in found}


def _is_required(field: Field[Any]) -> bool:
    return field.default is MISSING and field.default_factory is MISSING
