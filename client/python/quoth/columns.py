"""The columns of a batch from the arguments of a publish: values, keys, headers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from quothwire.errors import QuothError, error
from quothwire.headers import encode_headers

_BYTES = frozenset((bytes,))


class RecordColumns(NamedTuple):
    """Values, keys and encoded headers, one of each for every record; None for a column without any."""

    values: list[bytes]
    keys: list[bytes | None] | None
    headers: list[bytes] | None


def check_size(payload: bytes, payload_bytes_max: int, hint: str | None = None) -> None:
    """Raise ``too_large`` for a batch that the broker does not take."""
    if len(payload) > payload_bytes_max:
        text = f"a batch of {len(payload)} bytes, the broker takes {payload_bytes_max}"
        raise error("too_large", text, hint)


def columns(
    value: bytes | Sequence[bytes],
    key: bytes | Sequence[bytes | None] | None,
    headers: Mapping[str, bytes] | Sequence[Mapping[str, bytes]] | None,
) -> RecordColumns:
    """Return the columns of the arguments of a publish. Raises `RequestError` if they are wrong."""
    values = [value] if isinstance(value, bytes) else _several(value, "a value")
    if not _BYTES.issuperset(map(type, values)):
        _check_bytes(values, "a value")
    count = len(values)
    keys: list[bytes | None] | None = None
    if key is not None:
        keys = [key] * count if isinstance(key, bytes) else _several(key, "a key")
        _check_bytes([one for one in keys if one is not None], "a key")
    encoded = None
    if isinstance(headers, Mapping):
        encoded = [encode_headers(headers)] * count
    elif headers is not None:
        each = list(headers) if isinstance(headers, Iterable) else [headers]
        encoded = [encode_headers(one) for one in each]
    for column, name in ((keys, "keys"), (encoded, "headers")):
        if column is not None and len(column) != count:
            raise error("bad_request", f"{len(column)} {name} for {count} values")
    return RecordColumns(values, keys, encoded)


def _several(given: Any, what: str) -> list[Any]:
    """Return a list of the elements. Text and buffers have elements, too, but stand for one value."""
    if isinstance(given, (str, bytearray, memoryview)) or not isinstance(given, Iterable):
        raise _not_bytes(given, what)
    return list(given)


def _check_bytes(given: list[Any], what: str) -> None:
    for one in given:
        if not isinstance(one, bytes):
            raise _not_bytes(one, what)


def _not_bytes(given: Any, what: str) -> QuothError:
    return error("bad_request", f"{what} is bytes, not {type(given).__name__}", "encode it")
