"""Values as msgpack maps: a message's fields in, its fields out, each held against its annotation."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import MISSING, fields
from functools import cache
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import msgpack

from quothwire.errors import QuothError, error, shown
from quothwire.protocol.bounds import Range
from quothwire.protocol.messages import PARTS_MAX

REPLY_BYTES_MAX = 2**20
"""A full listing of topics with names of 200 bytes fits; nothing else comes near."""
REPLY_ELEMENTS_MAX = PARTS_MAX
REQUEST_BYTES_MAX = 2**13
"""Settings and a name need a few hundred bytes; what a stranger can make a broker decode costs it 2 ms."""
REQUEST_ELEMENTS_MAX = 64
"""An array takes its memory when it begins, and 1,024 can stand in each other: that is 0.5 MiB at most."""
REPLY_DEPTH_MAX, REQUEST_DEPTH_MAX = 8, 4
"""A list of lists of numbers in a map is the deepest there is; a later broker may have more to tell."""

_REQUEST_LIMITS = REQUEST_BYTES_MAX, REQUEST_ELEMENTS_MAX, REQUEST_DEPTH_MAX
_REPLY_LIMITS = REPLY_BYTES_MAX, REPLY_ELEMENTS_MAX, REPLY_DEPTH_MAX

FLAT_BYTES_MAX = 256
_SMALL_MAPS = frozenset(bytes((first,)) for first in range(0x80, 0x90))
"""The first bytes of maps with up to 15 entries."""
_PLAIN = frozenset((int, str, bool, float))

Check = Callable[[Any], bool]


def pack(message: Any, unicode_errors: str = "strict") -> bytes:
    """Encode a message's fields as one msgpack map.

    unicode_errors: what becomes of text that is no Unicode, as for `str.encode`. Raises `RequestError`
    ``bad_request`` for a value that cannot be encoded.
    """
    kind = message.__class__
    content = {name: getattr(message, name) for name in _checks(kind)}
    for name, default in _later(kind):
        if content[name] == default:
            del content[name]
    try:
        packed: bytes = msgpack.packb(content, unicode_errors=unicode_errors)
    except (OverflowError, TypeError, ValueError) as problem:
        raise error("bad_request", f"{_subject(kind)} cannot be encoded: {_unpackable(problem)}") from None
    return packed


def unpack(kind: Any, packed: bytes, *, strict: bool) -> Any:
    """Decode one message, a request if it has an operation, else a reply.

    strict: a field that the message does not have is refused, else it is passed over. Raises `RequestError`:
    ``bad_request``; for a number above its bounds, if strict, ``too_large`` or ``bad_pointer``.
    """
    found = _unpack_flat(packed)
    if found is None:
        found = _unpack_map(packed, *(_REQUEST_LIMITS if strict else _REPLY_LIMITS))
    checks = _checks(kind)
    for name, value in found.items():
        check = checks.get(name)
        if check is None:
            if strict:
                raise error("bad_request", f"{_subject(kind)} has no field {shown(name)}", _fields_hint(kind))
        elif not check(value):
            raise _misfit(kind, name, value, strict)
    if not found.keys() >= _required(kind):
        missing = ", ".join(name for name in checks if name in _required(kind) - found.keys())
        raise error("bad_request", f"{_subject(kind)} lacks {missing}", _fields_hint(kind))
    return kind(**found) if strict else kind(**{name: found[name] for name in found if name in checks})


def _unpack_flat(packed: bytes) -> dict[str, Any] | None:
    """A map that is small and holds nothing but plain values, as of every publish and fetch; else None.

    That nothing stands there twice is told by its length, which is in its first byte.
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
    """What msgpack allows and no message has."""


def _unique(pairs: list[tuple[Any, Any]]) -> dict[Any, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise _NotPlain("a key stands there twice")
    return found


def _refuse(code: int, _content: bytes) -> None:
    raise _NotPlain(f"an extension, type {code}")


_LIMIT = re.compile(r"[0-9]+ exceeds max_(array|map|str|bin|ext)_len\(([0-9]+)\)")


def _undecodable(problem: Exception) -> str:
    """Why bytes are no arguments. The library's own words are empty for some, and name Python for others."""
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
    """Why a message cannot be encoded, in words."""
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
    """What a message is called in a text: by its operation, which a reply does not have."""
    operation = getattr(kind, "operation", None)
    return "the reply" if operation is None else operation.name.lower()


def _fields_hint(kind: Any) -> str:
    names = ", ".join(_checks(kind))
    return f"nothing was done; its fields are {names}" if names else "nothing was done; it has no fields"


def _misfit(kind: Any, name: str, value: Any, strict: bool) -> QuothError:
    """The error of a value that its field cannot have."""
    hint = get_type_hints(kind, include_extras=True)[name]
    where = f"{name} of {_subject(kind)}"
    bounds = _bounds_of(hint)
    if bounds is not None and type(value) is int and strict:
        return bounds.refusal(where, value)
    return error("bad_request", f"{where} is {shown(value)}: it must be {_words_of(hint)}")


def _depth(value: Any, depth_max: int, level: int = 1) -> int:
    if level > depth_max or not isinstance(value, (dict, list)):
        return level
    inner = value.values() if isinstance(value, dict) else value
    return max((_depth(item, depth_max, level + 1) for item in inner), default=level)


@cache
def _checks(kind: Any) -> dict[str, Check]:
    hints = get_type_hints(kind, include_extras=True)
    return {field.name: _check_of(hints[field.name]) for field in fields(kind)}


@cache
def _later(kind: Any) -> list[tuple[str, Any]]:
    """The fields that are left out while they have their default, with it."""
    return [(field.name, field.default) for field in fields(kind) if "later" in field.metadata]


@cache
def _required(kind: Any) -> frozenset[str]:
    return frozenset(
        field.name for field in fields(kind) if field.default is MISSING and field.default_factory is MISSING
    )


def _bounds_of(hint: Any) -> Range | None:
    return next((extra for extra in get_args(hint) if isinstance(extra, Range)), None)


_WORDS: dict[Any, str] = {
    str: "text",
    bool: "true or false",
    float: "a number",
    list: "a list that fits",
    dict: "a map whose keys are text",
}


def _words_of(hint: Any) -> str:
    """What a field with this annotation takes, in words."""
    bounds, bare = _bounds_of(hint), get_args(hint)[0] if get_origin(hint) is Annotated else hint
    return f"an integer {bounds}" if bare is int else _WORDS[get_origin(bare) or bare]


def _check_of(hint: Any) -> Check:
    origin = get_origin(hint)
    if origin is Annotated:
        bounds = _bounds_of(hint)
        assert bounds is not None
        if get_origin(bare := get_args(hint)[0]) is list:
            check = _check_of(bare)
            return lambda value: check(value) and bounds.low <= len(value) <= bounds.high
        return lambda value: type(value) is int and bounds.low <= value <= bounds.high
    if origin is list:
        inner = _check_of(get_args(hint)[0])
        return lambda value: type(value) is list and all(map(inner, value))
    if origin is dict:
        return lambda value: type(value) is dict and all(type(key) is str for key in value)
    if hint is float:
        return lambda value: type(value) in (int, float)
    return lambda value: type(value) is hint
