"""The headers that carry the context of a trace, without OpenTelemetry."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping

from quothwire.errors import QuothError
from quothwire.headers import encode_headers

TRACEPARENT, TRACESTATE, BAGGAGE = NAMES = ("traceparent", "tracestate", "baggage")
"""The headers of W3C Trace Context and W3C Baggage."""
VALUE_BYTES_MAX = 8_192
"""Longer values are not looked at. W3C Baggage allows so many bytes; the other two need fewer."""
_TRACEPARENT = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(-.*)?")
_VISIBLE = re.compile(r"[\t\x20-\x7e]+")
_Text = str | bytes
Append = Callable[[bytes, bytes | None, Mapping[str, bytes] | None], int]
"""Appends a record to a batch; returns the number of its records, 0 for none."""


def text_of(value: bytes) -> str | None:
    """Return a header as text; None for one that is too long, empty, or no line of ASCII."""
    if len(value) > VALUE_BYTES_MAX:
        return None
    text = value.decode("latin-1")
    return text if _VISIBLE.fullmatch(text) else None


def has_own_context(headers: Mapping[str, bytes], names: Iterable[str]) -> bool:
    """Return True if headers have one of the names under which a context is written.

    Baggage alone is none: it says nothing of a trace.
    """
    return any(name in headers for name in (TRACEPARENT, TRACESTATE, *names) if name != BAGGAGE)


def merged(headers: Mapping[str, bytes], added: Mapping[str, bytes]) -> Mapping[str, bytes]:
    """Return headers with a context, unless they have one. Their own values are never replaced."""
    if not headers:
        return added
    return headers if has_own_context(headers, added) else {**added, **headers}


def fitting(headers: Mapping[str, bytes], added: Mapping[str, bytes]) -> Mapping[str, bytes]:
    """Return headers with a context, unless they have one or no room for it."""
    whole = merged(headers, added)
    try:
        encode_headers(whole)
    except QuothError:
        return headers
    return whole


def replaced(
    headers: Mapping[str, bytes],
    source: Mapping[str, bytes],
    added: Mapping[str, bytes],
    names: Collection[str],
) -> Mapping[str, bytes]:
    """Return the headers of a copy of a record with another context in place of that of the record.

    source: the headers of the record. names: those that a context may have. A copy whose context was changed
    or removed keeps what it has, as does one without room.
    """
    own = {name for name in {*names, *added} if headers.get(name) != source.get(name)}
    if own - {BAGGAGE}:
        return headers
    kept = {name: value for name, value in headers.items() if name not in names or name in own}
    whole = {**kept, **{name: value for name, value in added.items() if name not in own}}
    try:
        encode_headers(whole)
    except QuothError:
        return headers
    return whole


def headers_from_http(fields: Mapping[str, str] | Iterable[tuple[_Text, _Text]]) -> dict[str, bytes]:
    """Return the headers of a record that carry the context of an HTTP request on.

    fields: the header fields of the request, as a mapping or as pairs, of text or bytes, in any case of
    letters. Several fields of one name count as one, except ``traceparent``. A ``traceparent`` that is
    malformed is left out, and ``tracestate`` with it; so is what is too long, or no ASCII. Needs no API of
    OpenTelemetry.
    """
    found: dict[str, list[bytes]] = {name: [] for name in NAMES}
    pairs: Iterable[tuple[_Text, _Text]] = fields.items() if isinstance(fields, Mapping) else fields
    for name, value in pairs:
        values = found.get(_as_bytes(name).decode("latin-1").strip().lower())
        if values is not None:
            values.append(_as_bytes(value).strip())
    parents = found.pop(TRACEPARENT)
    headers = {name: b",".join(values) for name, values in found.items() if any(values)}
    parent = text_of(parents[0]) if len(parents) == 1 else None
    if parent is not None and _TRACEPARENT.fullmatch(parent):
        headers = {TRACEPARENT: parents[0], **headers}
    else:
        headers.pop(TRACESTATE, None)
    return {name: value for name, value in headers.items() if text_of(value) is not None}


def _as_bytes(given: _Text) -> bytes:
    return given if isinstance(given, bytes) else given.encode("utf-8", "replace")
