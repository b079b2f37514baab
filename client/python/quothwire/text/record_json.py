"""Records as objects of JSON: what commands print and HTTP sends, and what both read again.

Bytes are text if they are UTF-8, else NAME is null and NAME_base64 holds them. Headers that cannot be decoded
are empty, raw_headers_base64 holds them, and headers_problem says why.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any, Protocol

from quothwire.pointer import time_text
from quothwire.text.suggestion import nearest

_IGNORED = ("topic", "pointer", "time", "attempts")
"""Members of a printed record that a broker decides anew."""
_MEMBERS = ("value", "value_base64", "key", "key_base64", "headers", "headers_base64", *_IGNORED)

Draft = tuple[bytes, bytes | None, Mapping[str, bytes]]
"""A record to be published: value, key, headers. A class of its own would take 0.3 us a record."""
NO_HEADERS: Mapping[str, bytes] = {}


class StoredRecord(Protocol):
    """A record with its place, as `quoth.Message` is one."""

    @property
    def topic(self) -> str:
        """The name of its topic."""

    @property
    def pointer(self) -> int:
        """Its pointer."""

    @property
    def value(self) -> bytes:
        """Its value."""

    @property
    def key(self) -> bytes | None:
        """Its key, or None."""

    @property
    def headers(self) -> Mapping[str, bytes]:
        """Its headers; empty if they cannot be decoded."""

    @property
    def raw_headers(self) -> bytes:
        """The stored bytes of headers that cannot be decoded; else no bytes."""

    @property
    def headers_problem(self) -> str:
        """The reason why the headers cannot be decoded; empty if they can."""


# -- to JSON ------------------------------------------------------------------------------------------------


def record_object(record: StoredRecord) -> dict[str, Any]:
    """Convert a record to an object of JSON."""
    content: dict[str, Any] = {
        "topic": record.topic,
        "pointer": record.pointer,
        "time": time_text(record.pointer),
    }
    if (attempts := getattr(record, "attempts", 0)) > 0:  # a record of a group
        content["attempts"] = attempts
    _put(content, "key", record.key)
    _put(content, "value", record.value)
    texts: dict[str, str | None] = {}
    encoded: dict[str, str] = {}
    for name, value in record.headers.items():
        try:
            texts[name] = value.decode()
        except UnicodeDecodeError:
            texts[name], encoded[name] = None, base64.b64encode(value).decode()
    content["headers"] = texts
    if encoded:
        content["headers_base64"] = encoded
    if record.raw_headers:
        content["raw_headers_base64"] = base64.b64encode(record.raw_headers).decode()
        content["headers_problem"] = record.headers_problem
    return content


def _put(content: dict[str, Any], name: str, value: bytes | None) -> None:
    try:
        content[name] = value.decode() if value is not None else None
    except UnicodeDecodeError:
        content[name], content[f"{name}_base64"] = None, base64.b64encode(value or b"").decode()


# -- from JSON ----------------------------------------------------------------------------------------------


def json_object(line: bytes) -> Draft:
    """Parse a line that is an object with a value, and perhaps a key and headers. Raises ValueError."""
    content = json.loads(line)
    if not isinstance(content, dict):
        raise ValueError("it is no object")
    for name in content:
        if name not in _MEMBERS:
            near = nearest(name, _MEMBERS)
            raise ValueError(f"there is no member {name!r}" + (f", did you mean {near}?" if near else ""))
    value = _bytes(content.get("value"), content.get("value_base64"), "value")
    if value is None:
        raise ValueError("it has no value")
    key = _bytes(content.get("key"), content.get("key_base64"), "key")
    return value, key, _headers(content)


def _headers(content: Mapping[str, Any]) -> Mapping[str, bytes]:
    texts, encoded = _object(content, "headers"), _object(content, "headers_base64")
    headers: dict[str, bytes] = {}
    for name in {**texts, **encoded}:
        value = _bytes(texts.get(name), encoded.get(name), f"header {name!r}")
        if value is None:
            raise ValueError(f"header {name!r} has no value")
        headers[name] = value
    return headers


def _object(content: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = content.get(name)
    if not isinstance(found, dict | None):
        raise ValueError(f"{name} is no object")
    return found or {}


def _bytes(text: Any, encoded: Any, name: str) -> bytes | None:
    """Decode bytes that are given as text or in base64; None if there is neither."""
    if encoded is not None:
        if text is not None:
            raise ValueError(f"{name} is there as text and in base64")
        try:
            return base64.b64decode(encoded, validate=True)
        except (TypeError, ValueError):
            raise ValueError(f"{name} is no base64") from None
    if not isinstance(text, str | None):
        raise ValueError(f"{name} is no text")
    return None if text is None else text.encode()
