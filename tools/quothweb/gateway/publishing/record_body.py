"""Makes records of the body of a publish: one of all of it, of lines of JSON, or of msgpack.

The headers of the request are those of its one record: ``Quoth-Key``, ``Quoth-Header-NAME`` and, for tracing,
``traceparent``, ``tracestate`` and ``baggage``.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgpack

from quoth.columns import RecordColumns, columns
from quoth.tracing.carrier import headers_from_http
from quothwire.batch import BATCH_RECORDS_MAX
from quothwire.errors import QuothError, error, shown
from quothwire.text.record_json import NO_HEADERS, Draft, json_object

NDJSON = "application/x-ndjson"
MSGPACK = "application/msgpack"
MANY = frozenset((NDJSON, "application/jsonl", "application/jsonlines", MSGPACK, "application/x-msgpack"))
"""Types of bodies with any number of records."""
KEY, KEY_BASE64, HEADER = b"quoth-key", b"quoth-key-base64", b"quoth-header-"
_NESTING_MAX = 4
_NAMES = frozenset(("value", "key", "headers"))

RawHeaders = Sequence[tuple[bytes, bytes]]


def columns_of(media_type: str, body: bytes, headers: RawHeaders, *, traced: bool) -> RecordColumns:
    """Return the columns of the records of a publish. Raises ``bad_request`` or ``too_large``.

    traced: the record gets the headers for tracing.
    """
    if media_type not in MANY:
        key, own = _own_headers(headers, traced=traced)
        return columns(body, key, own or None)
    given = [name for name, _ in headers if name in (KEY, KEY_BASE64) or name.startswith(HEADER)]
    if given:
        text = f"the header {given[0].decode('ascii', 'replace')} belongs to a body that is one record"
        raise error("bad_request", text, "each record of this body has a key and headers of its own")
    drafts = list(_packed(body) if media_type.endswith("msgpack") else _lines(body))
    return _columns(drafts)


def _columns(drafts: Sequence[Draft]) -> RecordColumns:
    if not drafts:
        raise error("bad_request", "the body has no record", "nothing was stored")
    values, keys, headers = (list(column) for column in zip(*drafts, strict=True))
    return columns(
        values,
        keys if any(key is not None for key in keys) else None,
        headers if any(headers) else None,
    )


# -- one record ---------------------------------------------------------------------------------------------


def _own_headers(headers: RawHeaders, *, traced: bool) -> tuple[bytes | None, dict[str, bytes]]:
    """Return the key and the headers of the record, sorted, so that a retry has the same bytes."""
    key: bytes | None = None
    found: dict[str, bytes] = {}
    for name, value in headers:
        if name in (KEY, KEY_BASE64):
            if key is not None:
                raise error("bad_request", "the record has two keys", "send Quoth-Key once")
            key = value if name == KEY else _decoded(value)
        elif name.startswith(HEADER) and len(name) > len(HEADER):
            found[name[len(HEADER) :].decode("ascii")] = value
    context = headers_from_http(headers) if traced else {}
    return key, dict(sorted({**context, **found}.items()))


def _decoded(value: bytes) -> bytes:
    try:
        return base64.b64decode(value, validate=True)
    except ValueError:
        raise error("bad_request", "Quoth-Key-Base64 is no base64", "nothing was stored") from None


# -- many records -------------------------------------------------------------------------------------------


def _lines(body: bytes) -> Iterator[Draft]:
    """Parse lines of JSON; empty ones are skipped."""
    count = 0
    for number, line in enumerate(body.split(b"\n"), 1):
        if not line.strip():
            continue
        count += 1
        _require_few(count)
        try:
            yield json_object(line)
        except (ValueError, RecursionError) as problem:
            text = f"line {number} of the body is no record: {problem!s:.200}"
            hint = 'like {"value": "v", "key": "k", "headers": {"h": "1"}}; nothing was stored'
            raise error("bad_request", text, hint) from None


def _packed(body: bytes) -> Iterator[Draft]:
    """Parse a list of msgpack, of values or of maps with a value."""
    try:
        unpacker = msgpack.Unpacker(
            raw=False, strict_map_key=True, max_buffer_size=len(body) or 1, max_array_len=BATCH_RECORDS_MAX,
            max_map_len=10_000, unicode_errors="strict",
        )  # fmt: skip
        unpacker.feed(body)
        found = unpacker.unpack()
        if unpacker.tell() != len(body):
            raise ValueError("something follows the list")
    except (ValueError, RecursionError, msgpack.UnpackException) as problem:
        text = f"the body is no msgpack: {problem!s:.200}"
        raise error("bad_request", text, "a list of records; nothing was stored") from None
    if not isinstance(found, list):
        raise error("bad_request", "the body is no list of records", "nothing was stored")
    _require_few(len(found))
    for number, one in enumerate(found):
        try:
            yield _draft(one)
        except QuothError as problem:
            raise error(problem.code, f"record {number} of the body: {problem.text}", problem.hint) from None


def _draft(one: Any) -> Draft:
    if not isinstance(one, dict):
        return _bytes(one, "a record"), None, NO_HEADERS
    for name in one:
        if name not in _NAMES:
            raise error("bad_request", f"there is no member {shown(name)}", "value, key or headers")
    if "value" not in one:
        raise error("bad_request", "it has no value", "nothing was stored")
    headers = one.get("headers")
    if not isinstance(headers, Mapping | None):
        raise error("bad_request", "headers is no map", "nothing was stored")
    key = one.get("key")
    return (
        _bytes(one["value"], "value"),
        None if key is None else _bytes(key, "key"),
        {name: _bytes(value, "a header") for name, value in (headers or {}).items()},
    )


def _bytes(given: Any, what: str) -> bytes:
    if isinstance(given, str):
        return given.encode()
    if not isinstance(given, bytes):
        raise error("bad_request", f"{what} is neither binary nor text", "nothing was stored")
    return given


def _require_few(count: int) -> None:
    if count > BATCH_RECORDS_MAX:
        text = f"the body has more than {BATCH_RECORDS_MAX:,} records"
        raise error("too_large", text, "send them in several requests; nothing was stored")
