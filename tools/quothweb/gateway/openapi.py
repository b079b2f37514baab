"""The description of the gateway in OpenAPI 3.1, made of the operations."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from quothweb.gateway.operation import Content, HttpOperation
from quothweb.gateway.parameters import Parameter
from quothweb.problems import HttpProblem
from quothwire import VERSION

_ERROR = {"$ref": "#/components/schemas/Error"}
_ERROR_EXAMPLE = HttpProblem(
    "unknown_topic", "topic 'orders' does not exist", "the first publish makes a topic", retryable=False
).content()
_ERROR_SCHEMA = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["code", "text", "hint", "retryable"],
            "properties": {
                "code": {"type": "string", "description": "A code that keeps its meaning."},
                "text": {"type": "string"},
                "hint": {"type": "string"},
                "retryable": {"type": "boolean", "description": "The same request may succeed later."},
            },
        }
    },
}
_FAILURES = {
    "4XX": "The request is wrong, not allowed, or contradicts the broker's state. Nothing was done.",
    "5XX": "The broker or the server cannot do it; `retryable` says whether to try again.",
}
_ABOUT = """\
Topics, records and groups of a Quoth broker. A pointer identifies a record in its topic, orders it, and is
its time in microseconds since 1970. `quoth help gateway` describes what this page lists."""


def document(operations: Iterable[HttpOperation], server: str, *, needs_token: bool) -> dict[str, Any]:
    """Make the description. server: the path below which the operations lie."""
    paths: dict[str, dict[str, Any]] = {}
    for operation in operations:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _operation(operation)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Quoth", "version": VERSION, "description": _ABOUT},
        "servers": [{"url": server}],
        "security": [{"token": []}] if needs_token else [],
        "paths": paths,
        "components": {
            "schemas": {"Error": _ERROR_SCHEMA},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _operation(operation: HttpOperation) -> dict[str, Any]:
    answers: dict[str, Any] = {
        str(status): {"description": about, **_contents(contents)}
        for status, (about, contents) in operation.answers.items()
    }
    for failure, about in _FAILURES.items():
        error = {"application/json": {"schema": _ERROR, "example": _ERROR_EXAMPLE}}
        answers[failure] = {"description": about, "content": error}
    found: dict[str, Any] = {
        "operationId": operation.name,
        "summary": operation.summary,
        "description": operation.about,
        "parameters": [_parameter(one) for one in operation.parameters],
        "responses": answers,
    }
    if operation.bodies:
        found["requestBody"] = {"required": operation.needs_body, **_contents(operation.bodies)}
    return found


def _parameter(parameter: Parameter) -> dict[str, Any]:
    found: dict[str, Any] = {
        "name": parameter.name,
        "in": parameter.where,
        "description": parameter.about,
        "required": parameter.required,
        "schema": dict(parameter.schema),
    }
    if parameter.default not in (None, ""):
        found["schema"]["default"] = parameter.default
    if parameter.example is not None:
        found["example"] = parameter.example
    return found


def _contents(contents: Iterable[Content]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for one in contents:
        found[one.media_type] = {"schema": dict(one.schema)}
        if one.example is not None:
            found[one.media_type]["example"] = one.example
    return {"content": found} if found else {}
