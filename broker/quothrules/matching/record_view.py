"""A record as rules see it: its parts as text, and its value as a document that is decoded once."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

import msgpack

from quoth.message import Message

JSON, MSGPACK = FORMATS = ("json", "msgpack")
"""The formats of values in which a path can be looked up."""


class _NoDocument:
    """Stands for a value that is not of the format."""


NO_DOCUMENT = _NoDocument()


class RecordView:
    """One record under evaluation. now: the time, as a pointer. headers: as rules have changed them."""

    __slots__ = ("_documents", "headers", "message", "now")

    def __init__(self, message: Message, now: int) -> None:
        self.message = message
        self.now = now
        self.headers: Mapping[str, bytes] = message.headers
        self._documents: dict[str, Any] = {}

    @property
    def age_us(self) -> int:
        """The microseconds since it was stored."""
        return max(0, self.now - self.message.pointer)

    def document(self, form: str) -> Any:
        """Return the decoded value, `NO_DOCUMENT` if it is not of this format."""
        if form not in self._documents:
            self._documents[form] = _DECODERS[form](self.message.value)
        return self._documents[form]


def text_of(content: bytes) -> str:
    """Decode bytes for a regular expression. A byte that is not UTF-8 matches as \\udc80 to \\udcff."""
    return content.decode("utf-8", "surrogateescape")


def _from_json(value: bytes) -> Any:
    try:
        return json.loads(value, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        return NO_DOCUMENT


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


def _from_msgpack(value: bytes) -> Any:
    try:
        return msgpack.unpackb(value, raw=False, strict_map_key=False)
    except (ValueError, RecursionError, msgpack.UnpackException, TypeError):
        return NO_DOCUMENT


_DECODERS: dict[str, Callable[[bytes], Any]] = {JSON: _from_json, MSGPACK: _from_msgpack}
