"""Reads records: a range of them, or one. A range that is over and can be cached is answered as such.

A range is (after, until]: the first pointer is excluded, the second one included. The broker says how far so
many records reach before any of them is read, so the headers of the answer are exact.
"""

from __future__ import annotations

import math
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, replace

from starlette.responses import Response

from quoth.batch import Batch
from quoth.core.calls import ask
from quoth.core.options import deadline_in
from quoth.core.request_state import ClientCall, RequestState
from quoth.message import Gap
from quothweb.brokers import WAIT_S
from quothweb.gateway.operation import Content, GatewayCall, HttpOperation
from quothweb.gateway.parameters import (
    POINTER,
    TIMESTAMP,
    TOPIC,
    Parameter,
    now,
    pointer_of,
    span,
    timestamp,
    whole,
)
from quothweb.gateway.reading.caching import CacheEntry, is_zipped
from quothweb.gateway.reading.formats import (
    BATCHES,
    BINARY,
    EVENTS,
    JSON,
    NDJSON,
    PACKED,
    RECORDS,
    TEXT,
    AnswerCut,
    RecordFormat,
    encoded,
    negotiated,
)
from quothweb.gateway.reading.streaming import RecordStream, begun
from quothweb.gateway.reading.tail import follow
from quothweb.gateway.topics import log_text
from quothweb.problems import HttpProblem
from quothweb.streams import StreamEnded
from quothwire.errors import QuothError, error
from quothwire.pointer import POINTER_MAX
from quothwire.protocol.messages import WAIT_MS_MAX, Advance, AdvanceTopic, Fetch
from quothwire.text.record_json import record_object

LIMIT, LIMIT_MAX = 1_000, 1_000_000
PART_BYTES = 64 * 1024
"""Bytes of a part of an answer, encoded in about a millisecond."""
PART_RECORDS = 500
AHEAD_BYTES = 4 * PART_BYTES
"""Bytes of an answer for caches that are read before its headers are sent, which say whether it has a gap."""


SETTLED_S = 10
"""Age of a range in which nothing can change: a power cut may take what is younger and was not synced."""
_RELATIVE = ("-", "now")


@dataclass(frozen=True, slots=True)
class FoundRange:
    """A range of records that the broker has.

    records: so many are above `after`, some perhaps behind `until`. is_over: nothing can be added to it.
    is_fixed: so it is for every later request with the same text, too. is_ahead: it begins at a pointer above
    the newest one, not at a time.
    """

    topic: str
    after: int
    until: int
    records: int
    log: int
    newest: int
    gone: int
    is_over: bool
    is_fixed: bool
    is_ahead: bool

    def headers(self) -> dict[str, str]:
        """Return the headers that describe the range; an answer that is kept has only what never changes."""
        newest = {} if self.is_fixed else {"Quoth-Newest": str(self.newest)}
        return {
            "Quoth-Next": str(self.until),
            **newest,
            "Quoth-Gone": str(self.gone),
            "Quoth-Log": log_text(self.log),
        }


async def read_records(call: GatewayCall) -> Response:
    """Read a range of records, or follow the topic if the client wants events."""
    media_type = negotiated(call.request.headers.get("accept", ""), (*RECORDS, BATCHES, EVENTS))
    if media_type == EVENTS:
        return await follow(call)
    found = await _waited(call)
    zipped = is_zipped(call.request)
    if _entry(found, media_type).is_known(call.request, zipped=zipped):
        headers = _entry(found, media_type).headers(call, zipped=zipped)
        return Response(status_code=304, headers={**found.headers(), **headers})
    met: list[Gap] = []
    form = None if media_type == BATCHES else RECORDS[media_type]()
    parts = _stored(call, found, met) if form is None else _parts(call, found, form, met)
    if found.is_fixed and not call.is_head:
        parts = await begun(parts, AHEAD_BYTES)
        if met:
            found = replace(found, is_fixed=False)
        else:
            parts = _whole(call, found, parts, met)
    headers = {**found.headers(), **_entry(found, media_type).headers(call, zipped=zipped)}
    suffix = "" if form is None else form.suffix
    return RecordStream(parts, media_type + suffix, headers, is_zipped=zipped)


def _entry(found: FoundRange, media_type: str) -> CacheEntry:
    return CacheEntry(f"{log_text(found.log)}-{found.after}-{found.until}-{media_type}", found.is_fixed)


async def read_record(call: GatewayCall) -> Response:
    """Read the record with exactly one pointer: as an object, or its value alone."""
    media_type = negotiated(call.request.headers.get("accept", ""), (JSON, BINARY))
    pointer = call.given["pointer"]
    found = await call.client.count(call.topic, max(0, pointer - 1), pointer)
    is_old = pointer <= found.newest and pointer < now() - SETTLED_S * 1_000_000
    entry = CacheEntry(f"{log_text(found.log)}-{pointer}-{media_type}", is_old and found.records == 1)
    headers = {"Quoth-Log": log_text(found.log), **entry.headers(call)}
    if entry.is_known(call.request):
        return Response(status_code=304, headers=headers)
    message = await call.client.get(call.topic, pointer)
    body = message.value if media_type == BINARY else encoded(record_object(message))
    return Response(body, 200, headers, media_type)


# -- finding a range ----------------------------------------------------------------------------------------


async def _waited(call: GatewayCall) -> FoundRange:
    """Find the range of a request; wait for its first record if the request says so."""
    after, until = _bounds(call)
    wait = call.given["wait"]
    found = await _find(call, after, until, may_wait=wait > 0)
    if found is not None and (found.records or found.is_over or not wait):
        return found
    deadline = time.monotonic() + wait
    with call.services.streams.opened(call.principal) as stream:
        while (left := deadline - time.monotonic()) > 0 and not await call.request.is_disconnected():
            try:
                await stream.result_of(_wait_for_record(call, after, min(left, WAIT_S)))
            except StreamEnded:
                raise HttpProblem(
                    "shutting_down", "the wait ends with the server, or with the token"
                ) from None
            found = await _find(call, after, until, may_wait=left > WAIT_S)
            if found is not None and (found.records or found.is_over):
                return found
    last = await _find(call, after, until)
    assert last is not None, "it raises an error for a topic that does not exist"
    return last


def _bounds(call: GatewayCall) -> tuple[int, int]:
    """Return the two pointers of a request."""
    given = call.given
    if given["since"] is not None and given["after"] is not None:
        raise error("bad_request", "after and since both say where to begin", "say one of them")
    after = given["after"] or 0
    if given["since"] is not None:
        after = max(0, given["since"] - 1)
    until = POINTER_MAX if given["until"] is None else given["until"]
    if until < after:
        raise error("bad_request", f"a range that begins after {after} and ends at {until}", "swap the two")
    return after, until


async def _find(call: GatewayCall, after: int, until: int, *, may_wait: bool = False) -> FoundRange | None:
    """Find how far the records of a request reach. may_wait: None for a topic that does not exist."""
    request = AdvanceTopic(after, records_max=call.given["limit"])
    try:
        found = await call.client.execute(ask(Advance, request, call.topic, timeout=call.client.timeout))
    except QuothError as problem:
        if may_wait and problem.code == "unknown_topic":
            return None
        raise
    is_over = until <= found.newest
    if is_over:
        end = min(until, found.until) if found.records else until
    else:
        end = found.until if found.records else after
    is_old = until < now() - SETTLED_S * 1_000_000
    is_whole = not found.gone and found.log not in call.services.damaged_logs
    is_fixed = is_over and is_old and is_whole and _is_absolute(call)
    is_ahead = after > found.newest and call.request.query_params.get("after", "").strip().isdecimal()
    return FoundRange(
        call.topic,
        after,
        end,
        found.records,
        found.log,
        found.newest,
        found.gone,
        is_over,
        is_fixed,
        is_ahead,
    )


def _is_absolute(call: GatewayCall) -> bool:
    """True if the request names both bounds, and none by its distance from now."""
    query = call.request.query_params
    texts = [query[name] for name in ("after", "since", "until") if name in query]
    return (
        len(texts) == 2 and "until" in query and not any(text.strip().startswith(_RELATIVE) for text in texts)
    )


async def _wait_for_record(call: GatewayCall, after: int, seconds: float) -> None:
    """Wait until a topic has a record above a pointer, or for so many seconds."""

    def wait() -> ClientCall[None]:
        fetch = Fetch(after=after, records_max=1, bytes_max=1, wait_ms=math.ceil(seconds * 1_000))
        deadline = deadline_in(seconds + call.client.timeout)
        yield RequestState(fetch, call.topic, wait=seconds, deadline=deadline)

    try:
        await call.client.execute(wait())
    except QuothError as problem:
        if problem.code != "unknown_topic":
            raise


# -- the parts of an answer ---------------------------------------------------------------------------------


async def _whole(
    call: GatewayCall, found: FoundRange, parts: AsyncIterator[bytes], met: list[Gap]
) -> AsyncIterator[bytes]:
    """Yield an answer that caches keep, and cut it at a gap: no cache keeps a part, and the next answer to
    the same request tells the gap.
    """
    async for part in parts:
        if met:
            break
        yield part
    if met:
        call.services.damaged_logs.add(found.log)
        raise AnswerCut(met[0])


async def _parts(
    call: GatewayCall, found: FoundRange, form: RecordFormat, met: list[Gap]
) -> AsyncIterator[bytes]:
    """Yield an answer in parts of some KiB. met: gets all gaps."""
    gaps: list[Gap] = []
    yield form.begin()
    if found.is_ahead:
        gaps.append(Gap(call.topic, found.newest, found.after + 1, 0, "ahead"))

    def on_gap(gap: Gap) -> None:
        gaps.append(gap)
        met.append(gap)

    batches = call.client.batches(
        call.topic, after=found.after, until=min(found.until + 1, POINTER_MAX), on_gap=on_gap
    )
    try:
        async for batch in batches:
            for part in _encoded(form, found, gaps, batch):
                yield part
    except QuothError as problem:
        yield form.problem(problem)
        raise AnswerCut from problem
    finally:
        await batches.aclose()
    yield _gaps(form, found, gaps) + form.end()


def _encoded(form: RecordFormat, found: FoundRange, gaps: list[Gap], batch: Batch) -> Iterator[bytes]:
    """Yield the records of a batch that belong to a range, behind the gaps in front of them."""
    pieces = [_gaps(form, found, gaps)]
    size = 0
    for message in batch.head(max(0, found.until + 1 - batch.first)):
        piece = form.record(message)
        pieces.append(piece)
        size += len(piece)
        if size >= PART_BYTES or len(pieces) >= PART_RECORDS:
            yield b"".join(pieces)
            pieces, size = [], 0
    yield b"".join(pieces)


def _gaps(form: RecordFormat, found: FoundRange, gaps: list[Gap]) -> bytes:
    """Encode gaps, but for those that only headers tell in this format."""
    told = b"".join(form.gap(gap) for gap in gaps if form.tells_gaps or not _is_in_headers(gap, found))
    gaps.clear()
    return told


def _is_in_headers(gap: Gap, found: FoundRange) -> bool:
    """Return True for a gap that Quoth-Newest or Quoth-Gone shows."""
    return gap.reason == "ahead" or (gap.reason == "trimmed" and gap.after == found.after)


async def _stored(call: GatewayCall, found: FoundRange, met: list[Gap]) -> AsyncIterator[bytes]:
    """Yield batches as they are stored; their headers show what is missing between them."""
    if found.until == found.after:
        return
    batches = call.client.stored(call.topic, after=found.after, until=found.until, on_gap=met.append)
    try:
        async for batch in batches:
            yield bytes(batch.data)
    except QuothError as problem:
        raise AnswerCut from problem
    finally:
        await batches.aclose()


_RECORD_EXAMPLE = {
    "topic": "orders", "pointer": 1767323045000001, "time": "2026-01-02T03:04:05.000001Z", "key": None,
    "value": "hello", "headers": {},
}  # fmt: skip
_BINARY = {"type": "string", "format": "binary"}
_LINE = encoded(_RECORD_EXAMPLE).decode() + "\n"
_RECORD_SCHEMA = {"type": "object", "required": ["topic", "pointer", "time", "value", "headers"]}
_EVENT = f"id: {_RECORD_EXAMPLE['pointer']}\ndata: {encoded(_RECORD_EXAMPLE).decode()}\n\n"

OPERATIONS = (
    HttpOperation(
        "read_records", "GET", "/topics/{topic}/records", "Read records",
        "Reads the records above `after` up to `until`, at most `limit`. Quoth-Next in the answer is the "
        "`after` to go on with. Accept chooses the format; text/event-stream follows the topic for ever.",
        read_records,
        (TOPIC,
         Parameter("after", "A pointer or a time, exclusive; by default the beginning, the end for events.",
                   timestamp, TIMESTAMP, example="1767323045000000"),
         Parameter("since", "A pointer or a time, inclusive, in place of `after`.", timestamp, TIMESTAMP),
         Parameter("until", "A pointer or a time, inclusive; by default the newest.", timestamp, TIMESTAMP),
         Parameter("limit", "The most records.", *whole(1, LIMIT_MAX), default=LIMIT),
         Parameter("wait", "Time to wait for a record.", *span(0.0, WAIT_MS_MAX / 1_000), default=0.0),
         Parameter("Last-Event-ID", "Where events go on, instead of `after`.", str, {"type": "string"},
                   where="header")),
        answers={
            200: ("The records.", (
                Content(NDJSON, _RECORD_SCHEMA, _LINE),
                Content(JSON, {"type": "array", "items": {"type": "object"}}, [_RECORD_EXAMPLE]),
                Content(PACKED, _BINARY), Content(BINARY, _BINARY), Content(BATCHES, _BINARY),
                Content(TEXT, {"type": "string"}, "hello\n"), Content(EVENTS, {"type": "string"}, _EVENT),
            )),
            304: ("The client has them.", ()),
        },
        shows_content=True,
    ),
    HttpOperation(
        "read_record", "GET", "/topics/{topic}/records/{pointer}", "Read a record",
        "Reads the record with exactly this pointer: an object or, as application/octet-stream, its value.",
        read_record,
        (TOPIC, Parameter("pointer", "Its pointer.", pointer_of, POINTER, where="path", required=True,
                          example=1767323045000001)),
        answers={
            200: ("The record.",
                  (Content(JSON, _RECORD_SCHEMA, _RECORD_EXAMPLE), Content(BINARY, _BINARY))),
            304: ("The client has it.", ()),
        },
        shows_content=True,
    ),
)  # fmt: skip
