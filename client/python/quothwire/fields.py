"""Values as msgpack maps: a message's fields in, its fields out, each held against its annotation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, fields
from functools import cache
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import msgpack

from quothwire.bounds import Range
from quothwire.errors import error
from quothwire.message import PARTS_MAX

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
        raise error("bad_request", f"{kind.__name__} cannot be encoded: {str(problem)[:200]}") from None
    return packed


def unpack(kind: Any, packed: bytes, *, strict: bool) -> Any:
    """Decode one message, or raise `RequestError` ``bad_request``.

    strict: a field that the message does not have is refused, else it is passed over.
    """
    found = _unpack_flat(packed)
    if found is None:
        found = _unpack_map(packed, *(_REQUEST_LIMITS if strict else _REPLY_LIMITS))
    checks = _checks(kind)
    for name, value in found.items():
        check = checks.get(name)
        if check is None:
            if strict:
                raise error("bad_request", f"{kind.__name__} has no field {str(name)[:80]!r}")
        elif not check(value):
            raise error("bad_request", f"{kind.__name__}: {name} cannot be {str(value)[:80]!r}")
    if not found.keys() >= _required(kind):
        missing = sorted(_required(kind) - found.keys())
        raise error("bad_request", f"{kind.__name__} lacks {', '.join(missing)}")
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
        raise error("bad_request", f"arguments are no msgpack map: {str(problem)[:80]}") from None
    if not isinstance(found, dict) or _depth(found, depth_max) > depth_max:
        raise error("bad_request", "arguments are no plain msgpack map")
    return found


def _unique(pairs: list[tuple[Any, Any]]) -> dict[Any, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key stands there twice")
    return found


def _refuse(code: int, _content: bytes) -> None:
    raise ValueError(f"an extension, type {code}")


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


def _check_of(hint: Any) -> Check:
    origin = get_origin(hint)
    if origin is Annotated:
        bounds = next(extra for extra in get_args(hint) if isinstance(extra, Range))
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
