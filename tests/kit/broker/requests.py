"""Every request of the fast protocol, as its declaration and as PROTOCOL.md's table of operations have it."""

from __future__ import annotations

import re
from dataclasses import MISSING, Field, fields
from pathlib import Path
from typing import Any, get_args, get_type_hints

from quothwire.pointer import POINTER_MAX
from quothwire.protocol.messages import REQUESTS, Operation, Request
from quothwire.protocol.value import Range

PROTOCOL = Path(__file__).parents[3] / "client" / "PROTOCOL.md"

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


def declared(operation: Operation) -> dict[str, Any]:
    """The default of every field of a request, None for one that is required."""
    kind = REQUESTS[operation]
    made = example(operation)
    return {field.name: None if _is_required(field) else getattr(made, field.name) for field in fields(kind)}


def documented(operation: Operation) -> dict[str, Any]:
    """The same as the table of operations in PROTOCOL.md has it."""
    rows = dict(re.findall(r"^\| ([0-9]+) `\w+` \|([^|]*)\|", PROTOCOL.read_text(), re.MULTILINE))
    found = re.findall(r"`(\w+)`(?: map)?(?: = (\"\"|{}|[-0-9^]+(?: - 1| MiB)?))?", rows[str(int(operation))])
    return {name: _value(default) if default else None for name, default in found}


def highest(kind: type[Any]) -> dict[str, str]:
    """The upper end of each number of a request, as PROTOCOL.md writes it; without pointers and ids."""
    found = {}
    for name, hint in get_type_hints(kind, include_extras=True).items():
        bounds = next((part for part in get_args(hint) if isinstance(part, Range)), None)
        if bounds is not None and bounds.high not in (POINTER_MAX, 2**64 - 1):
            found[name] = _written(bounds.high)
    return found


def _written(number: int) -> str:
    for shift in range(20, 64):
        if number in (2**shift, 2**shift - 1):
            return f"2^{shift}" if number == 2**shift else f"2^{shift} - 1"
    return f"{number:,}"


def _value(written: str) -> Any:
    if written in ('""', "{}"):
        return "" if written == '""' else {}
    if written.endswith(" MiB"):
        return int(written.removesuffix(" MiB")) * 2**20
    base, _, rest = written.partition("^")
    shift, _, less = rest.partition(" - ")
    return int(base) ** int(shift or 1) - int(less or 0)


def _is_required(field: Field[Any]) -> bool:
    return field.default is MISSING and field.default_factory is MISSING
