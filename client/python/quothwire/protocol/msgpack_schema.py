"""Messages as msgpack maps. Decoding compares the value of each field with the field's annotation."""

from __future__ import annotations

import re
from dataclasses import MISSING, fields
from functools import cache
from typing import Annotated, Any, NamedTuple, get_args, get_origin, get_type_hints

import msgpack

from quothwire.errors import QuothError, error, shown
from quothwire.protocol.messages import PARTS_MAX
from quothwire.protocol.value import Range

REPLY_BYTES_MAX = 2**20
"""A full listing of topics with names of 200 bytes fits. Every other reply is far smaller."""
REPLY_ELEMENTS_MAX = PARTS_MAX
REQUEST_BYTES_MAX = 2**13
"""Settings and a name need a few hundred bytes. A hostile request of this size costs the broker 2 ms."""
REQUEST_ELEMENTS_MAX = 64
"""The decoder allocates an array when it begins, and nests up to 1,024 of them: 0.5 MiB at most."""
REPLY_DEPTH_MAX, REQUEST_DEPTH_MAX = 8, 4
"""The deepest message is a map with a list of lists. Replies of a later broker may be deeper."""

_REQUEST_LIMITS = REQUEST_BYTES_MAX, REQUEST_ELEMENTS_MAX, REQUEST_DEPTH_MAX
_REPLY_LIMITS = REPLY_BYTES_MAX, REPLY_ELEMENTS_MAX, REPLY_DEPTH_MAX

FLAT_BYTES_MAX = 256
_SMALL_MAPS = frozenset(bytes((first,)) for first in range(0x80, 0x90))
"""The first bytes of maps with up to 15 entries."""
_PLAIN = frozenset((int, str, bool, float))

_INTEGERS = range(-(2**63), 2**64)
"""All integers of msgpack."""


def pack(message: Any, unicode_errors: str = "strict") -> bytes:
    """Encode a message's fields as one msgpack map.

    unicode_errors: how to encode text that is not Unicode, as in `str.encode`. Raises `RequestError`
    ``bad_request`` for a value that cannot be encoded.
    """
    kind = message.__class__
    content = vars(message)
    if later := _later(kind):
        content = content.copy()
        for name, default in later:
            if content[name] == default:
                del content[name]
    try:
        packed: bytes = msgpack.Packer(unicode_errors=unicode_errors).pack(content)
    except (OverflowError, TypeError, ValueError) as problem:
        raise error("bad_request", f"{_subject(kind)} cannot be encoded: {_unpackable(problem)}") from None
    return packed


def unpack(kind: Any, packed: bytes, *, strict: bool) -> Any:
    """Decode one message, a request if it has an operation, else a reply.

    strict: refuse a field that the message does not have, instead of ignoring it. Raises `RequestError`:
    ``bad_request``; for a number above its bounds, if strict, ``too_large`` or ``bad_pointer``.
    """
    found = _unpack_flat(packed)
    if found is None:
        found = _unpack_map(packed, *(_REQUEST_LIMITS if strict else _REPLY_LIMITS))
    takes = _fields(kind)
    for name, value in found.items():
        field = takes.get(name)
        if field is None:
            if strict:
                raise error("bad_request", f"{_subject(kind)} has no field {shown(name)}", _fields_hint(kind))
        elif value not in field.integers if type(value) is int else not field.takes(value):
            raise _misfit(field, f"{name} of {_subject(kind)}", value, strict)
    if not found.keys() >= _required(kind):
        missing = ", ".join(name for name in takes if name in _required(kind) - found.keys())
        raise error("bad_request", f"{_subject(kind)} lacks {missing}", _fields_hint(kind))
    return kind(**found) if strict else kind(**{name: found[name] for name in found if name in takes})


class _Field(NamedTuple):
    """The values that a field takes.

    bounds: of an integer, or of the length of a list. integers: those that it takes. item: of a list.
    """

    type: type
    bounds: Range | None
    integers: range
    item: _Field | None

    @classmethod
    def of(cls, hint: Any) -> _Field:
        """Return the field of an annotation."""
        bare, bounds = get_args(hint) if get_origin(hint) is Annotated else (hint, None)
        item = cls.of(get_args(bare)[0]) if get_origin(bare) is list else None
        integers = _INTEGERS if bare in (int, float) else range(0)
        if bare is int and bounds is not None:
            integers = range(bounds.low, bounds.high + 1)
        return cls(get_origin(bare) or bare, bounds, integers, item)

    def takes(self, value: Any) -> bool:
        """True if the field may have this value, of any type."""
        kind = type(value)
        if kind is int:
            return value in self.integers
        if kind is not self.type:
            return False
        if self.item is not None:
            low, high, _ = self.bounds or (0, len(value), "")
            return low <= len(value) <= high and all(map(self.item.takes, value))
        return kind is not dict or all(isinstance(key, str) for key in value)

    def __str__(self) -> str:
        return f"an integer {self.bounds}" if self.type is int else _WORDS[self.type]


_WORDS: dict[type, str] = {
    str: "text",
    bool: "true or false",
    float: "a number",
    list: "a list that fits",
    dict: "a map whose keys are text",
}


@cache
def _fields(kind: Any) -> dict[str, _Field]:
    hints = get_type_hints(kind, include_extras=True)
    return {field.name: _Field.of(hints[field.name]) for field in fields(kind)}


@cache
def _later(kind: Any) -> list[tuple[str, Any]]:
    """Return the fields that are not sent while they have their default, with it."""
    return [
        (field.name, field.default if field.default_factory is MISSING else field.default_factory())
        for field in fields(kind)
        if "later" in field.metadata
    ]


@cache
def _required(kind: Any) -> frozenset[str]:
    return frozenset(
        field.name for field in fields(kind) if field.default is MISSING and field.default_factory is MISSING
    )


def _misfit(field: _Field, where: str, value: Any, strict: bool) -> QuothError:
    """Make the error for a value that its field does not take."""
    if field.type is int and type(value) is int and strict and field.bounds is not None:
        return field.bounds.error_for(where, value)
    return error("bad_request", f"{where} is {shown(value)}: it must be {field}")


def _unpack_flat(packed: bytes) -> dict[str, Any] | None:
    """Decode a small map of plain values, as publishes and fetches have; None for any other map.

    Its first byte has the number of entries: fewer keys than that means that one is there twice.
    """
    if len(packed) > FLAT_BYTES_MAX or packed[:1] not in _SMALL_MAPS:
        return None
    try:
        found: dict[str, Any] = msgpack.unpackb(packed, raw=False, max_array_len=0, max_ext_len=0)
    except (ValueError, RecursionError):
        return None
    if len(found) != packed[0] & 15 or not _PLAIN.issuperset(map(type, found.values())):
        return None
    return found


def _unpack_map(packed: bytes, bytes_max: int, elements_max: int, depth_max: int) -> dict[str, Any]:
    if len(packed) > bytes_max:
        raise error("bad_request", f"arguments of {len(packed)} bytes, at most {bytes_max}")
    try:
        found = msgpack.unpackb(
            packed,
            raw=False,
            object_pairs_hook=_unique,
            max_array_len=elements_max,
            max_map_len=elements_max,
            max_ext_len=0,
            ext_hook=_refuse,
        )
    except (ValueError, RecursionError) as problem:
        raise error("bad_request", f"arguments are no plain map: {_undecodable(problem)}") from None
    if not isinstance(found, dict):
        raise error("bad_request", f"arguments are no plain map: they are {shown(found)}")
    if _depth(found, depth_max) > depth_max:
        raise error("bad_request", f"arguments are no plain map: more than {depth_max} levels in each other")
    return found


class _NotPlain(ValueError):
    """Content that msgpack allows and no message has."""


def _unique(pairs: list[tuple[Any, Any]]) -> dict[Any, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise _NotPlain("a key stands there twice")
    return found


def _refuse(code: int, _content: bytes) -> None:
    raise _NotPlain(f"an extension, type {code}")


_LIMIT = re.compile(r"[0-9]+ exceeds max_(array|map|str|bin|ext)_len\(([0-9]+)\)")


def _undecodable(problem: Exception) -> str:
    """Say why bytes cannot be decoded: the library's texts are empty for some reasons, or name Python."""
    match problem:
        case _NotPlain():
            return str(problem)
        case UnicodeDecodeError():
            return "a text is not UTF-8"
        case msgpack.ExtraData():
            return "more bytes follow it"
        case msgpack.FormatError():
            return "a byte that msgpack does not use"
        case msgpack.StackError() | RecursionError():
            return "it is nested too deeply"
    limit = _LIMIT.search(str(problem))
    if limit is not None and limit[1] in ("array", "map"):
        return f"more than {limit[2]} elements in one {'list' if limit[1] == 'array' else 'map'}"
    if limit is not None and limit[1] == "ext":
        return "an extension"
    if "strict_map_key" in str(problem):
        return "a key is no text"
    return "it is cut off"


def _unpackable(problem: Exception) -> str:
    """Say why a message cannot be encoded."""
    match problem:
        case OverflowError():
            return "a number has more than 64 bits"
        case UnicodeEncodeError():
            return "a text is no Unicode"
        case TypeError():
            return "a value is neither text, number, list nor map"
        case _:
            return "it is nested too deeply"


def _subject(kind: Any) -> str:
    """Return the name of a message in an error: its operation, which a reply does not have."""
    operation = getattr(kind, "operation", None)
    return "the reply" if operation is None else operation.name.lower()


def _fields_hint(kind: Any) -> str:
    names = ", ".join(_fields(kind))
    return f"nothing was done; its fields are {names}" if names else "nothing was done; it has no fields"


def _depth(value: Any, depth_max: int, level: int = 1) -> int:
    if level > depth_max or not isinstance(value, (dict, list)):
        return level
    inner = value.values() if isinstance(value, dict) else value
    return max((_depth(item, depth_max, level + 1) for item in inner), default=level)
