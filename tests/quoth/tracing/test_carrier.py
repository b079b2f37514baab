"""The headers of a trace, without OpenTelemetry: from HTTP, and in a copy of a record."""

from __future__ import annotations

from typing import Any

import pytest

import quoth.tracing
from quoth.tracing.carrier import NAMES, replaced
from quothwire.headers import HEADERS_BYTES_MAX

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
LATER = f"01{PARENT[2:]}-more"
OF_PARENT = {"traceparent": PARENT.encode()}
HTTP: dict[str, tuple[Any, dict[str, bytes]]] = {
    "nothing": ({}, {}),
    "a mapping": ({"Traceparent": PARENT, "Host": "a"}, OF_PARENT),
    "pairs of bytes": ([(b"TRACEPARENT", PARENT.encode())], OF_PARENT),
    "spaces around": ({"traceparent": f" {PARENT}\t"}, OF_PARENT),
    "a later version": ({"traceparent": LATER}, {"traceparent": LATER.encode()}),
    "two parents": ([("traceparent", PARENT), ("traceparent", PARENT), ("tracestate", "a=1")], {}),
    "no parent": ({"tracestate": "a=1", "baggage": "b=2"}, {"baggage": b"b=2"}),
    "a malformed one": ({"traceparent": PARENT[:-1], "tracestate": "a=1"}, {}),
    "version ff": ({"traceparent": f"ff{PARENT[2:]}"}, {}),
    "no trace": ({"traceparent": f"00-{'0' * 32}{PARENT[35:]}"}, {}),
    "no span": ({"traceparent": f"{PARENT[:36]}{'0' * 16}-01"}, {}),
    "states": (
        [("tracestate", "a=1"), ("traceparent", PARENT), ("Tracestate", "b=2"), ("tracestate", "")],
        {**OF_PARENT, "tracestate": b"a=1,b=2,"},
    ),
    "no ASCII": ({"traceparent": PARENT, "baggage": "ä=1", "tracestate": "a=\x00"}, OF_PARENT),
    "too long": ({"traceparent": PARENT, "baggage": "a" * 8_193, "tracestate": "b" * 8_192}, {
        **OF_PARENT, "tracestate": b"b" * 8_192,
    }),
    "names that are no ASCII": ([("tracepärent", PARENT), (b"\xff", b"\xff")], {}),
}  # fmt: skip


@pytest.mark.parametrize(("fields", "expected"), HTTP.values(), ids=HTTP)
def test_a_request_by_http_gives_a_record_its_context(fields: Any, expected: dict[str, bytes]) -> None:
    assert quoth.tracing.headers_from_http(fields) == expected


SOURCE = {"traceparent": b"old", "tracestate": b"old", "baggage": b"old", "x": b"1"}
ADDED = {"traceparent": b"new", "baggage": b"new"}
COPIES: dict[str, tuple[dict[str, bytes], dict[str, bytes]]] = {
    "the same": (SOURCE, {"x": b"1", **ADDED}),
    "other headers": ({**SOURCE, "x": b"2", "y": b"3"}, {"x": b"2", "y": b"3", **ADDED}),
    "another context": ({**SOURCE, "traceparent": b"own"}, {**SOURCE, "traceparent": b"own"}),
    "none": ({"x": b"1"}, {"x": b"1"}),
    "no baggage": (
        {name: SOURCE[name] for name in ("traceparent", "tracestate", "x")},
        {"traceparent": b"new", "x": b"1"},
    ),
    "no room": ({**SOURCE, "y": bytes(HEADERS_BYTES_MAX)}, {**SOURCE, "y": bytes(HEADERS_BYTES_MAX)}),
}


@pytest.mark.parametrize(("copy", "expected"), COPIES.values(), ids=COPIES)
def test_a_copy_gets_another_context_unless_its_own_was_changed(
    copy: dict[str, bytes], expected: dict[str, bytes]
) -> None:
    assert replaced(copy, SOURCE, ADDED, NAMES) == expected
