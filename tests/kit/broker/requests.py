"""A request of every operation of the fast protocol."""

from __future__ import annotations

from dataclasses import MISSING, fields
from typing import Any

from quothwire.protocol.messages import REQUESTS, Operation, Request

SAMPLES: dict[str, Any] = {
    "before": 2**56 - 1,
    "application": "loader",
    "version": 3,
    "part": 0,
    "attempt": 7,
    "parts": 0,
    "group": "workers",
    "rows": 1,
    "pointer": 1,
}
"""A value for each field that is required: one that would do something."""
OF_OPERATIONS: dict[Operation, dict[str, Any]] = {
    Operation.SEEK_GROUP: {"after": 1},
    Operation.COMMIT_CURSOR: {"group": "reader"},
}
"""Other values of some operations."""


def example(operation: Operation) -> Request:
    """A request with its required fields and the defaults of the others."""
    kind = REQUESTS[operation]
    values = SAMPLES | OF_OPERATIONS.get(operation, {})
    made: Request = kind(**{name: values[name] for name in required(operation)})
    return made


def required(operation: Operation) -> list[str]:
    """The fields without which there is no such request, as the message declares them."""
    found = fields(REQUESTS[operation])
    return [one.name for one in found if one.default is MISSING and one.default_factory is MISSING]
