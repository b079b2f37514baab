"""The calls of a client: the requests of each, and the evaluation of the answers.

timeout: seconds that the broker may take to answer each of the requests.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, TypeVar

from quoth.batch import Batch, Messages
from quoth.core.deadline import as_seconds, deadline_in
from quoth.core.request_state import ClientCall, RequestState
from quoth.message import Gap, Message, OnGap, PointerRange
from quoth.reader import RecordReader, StoredReader
from quothwire import batch as wire
from quothwire.errors import Conflict, Disconnected, NotFound, error
from quothwire.pointer import POINTER_MAX, check_pointer
from quothwire.protocol.messages import (
    Advance,
    AdvanceTopic,
    Count,
    CountTopic,
    CreateTopic,
    DeleteTopic,
    DescribeTopic,
    GetStatus,
    Hello,
    ListTopics,
    Parts,
    SplitTopic,
    Status,
    TopicInfo,
    Topics,
    Trimmed,
    Welcome,
)
from quothwire.protocol.operations import Request
from quothwire.text.quantity import format_span
from quothwire.topic import check_topic

R = TypeVar("R")


def ask(kind: type[R], request: Request, topic: str = "", *, timeout: float) -> ClientCall[R]:
    """Send one request, and return the reply, which is of the given kind."""
    reply = (yield RequestState(request, topic, deadline=deadline_in(timeout))).reply
    assert isinstance(reply, kind)
    return reply


def hello(timeout: float) -> ClientCall[Welcome]:
    """See `Client.hello`."""
    return ask(Welcome, Hello("quoth-python"), timeout=timeout)


def greet(timeout: float, wait: float | None) -> ClientCall[Welcome]:
    """Send the `hello` of a client that connects. wait: seconds to wait for the broker, None for the timeout.

    Raises `Disconnected` with the reason and the time waited.
    """
    if wait is None:
        return (yield from hello(timeout))
    seconds = as_seconds(wait, "wait")
    try:
        return (yield from hello(seconds))
    except Disconnected as problem:
        if problem.code != "timed_out":  # else the text says how long already
            raise
        text = f"{problem.text}: it takes connections, and has answered nothing for {format_span(seconds)}"
        raise error(problem.code, text, problem.hint) from problem


def payload_bytes_max(welcome: Welcome) -> int:
    """Return the bytes of the largest batch that a broker takes."""
    frame_bytes_max: int = welcome.limits.get("frame_bytes_max", wire.BATCH_BYTES_MAX)
    return min(wire.BATCH_BYTES_MAX, frame_bytes_max)


def status(timeout: float) -> ClientCall[Status]:
    """See `Client.status`."""
    first = last = yield from ask(Status, GetStatus(after=""), timeout=timeout)
    states = dict(first.states)
    while last.states:
        last = yield from ask(Status, GetStatus(after=list(last.states)[-1]), timeout=timeout)
        states |= last.states
    return Status(**{name: getattr(first, name) for name in Status.__dataclass_fields__} | {"states": states})


def topics(timeout: float) -> ClientCall[list[str]]:
    """See `Client.topics`."""
    names: list[str] = []
    while True:
        reply = yield from ask(Topics, ListTopics(after=names[-1] if names else ""), timeout=timeout)
        if not reply.names:
            return names
        names += reply.names


def info(request: Request, topic: str, timeout: float) -> ClientCall[TopicInfo]:
    """Send a request whose reply describes a topic."""
    return ask(TopicInfo, request, check_topic(topic), timeout=timeout)


def create_topic(topic: str, settings: Mapping[str, Any], timeout: float) -> ClientCall[TopicInfo]:
    """See `Client.create_topic`."""
    deadline = deadline_in(timeout)
    create = RequestState(CreateTopic(dict(settings)), check_topic(topic), deadline=deadline)
    try:
        reply = (yield create).reply
    except Conflict:
        if not create.unanswered:
            raise
        # A copy without an answer may have created it: then the topic has the given settings.
        reply = (yield RequestState(DescribeTopic(), topic, deadline=deadline)).reply
        assert isinstance(reply, TopicInfo)
        if reply.settings != {**reply.settings, **settings}:
            raise
    assert isinstance(reply, TopicInfo)
    return reply


def delete_topic(topic: str, timeout: float) -> ClientCall[Trimmed]:
    """See `Client.delete_topic`."""
    deadline = deadline_in(timeout)
    found = (yield RequestState(DescribeTopic(), check_topic(topic), deadline=deadline)).reply
    assert isinstance(found, TopicInfo)
    delete = RequestState(DeleteTopic(found.log), topic, deadline=deadline)
    try:
        reply = (yield delete).reply
    except NotFound:
        if not delete.unanswered:
            raise
        return Trimmed(0, 0, 0)
    assert isinstance(reply, Trimmed)
    return reply


def read(reader: RecordReader, end: int, limit: int, wait: float, timeout: float) -> ClientCall[Messages]:
    """See `Client.read`. end: the last pointer to read. wait: seconds to wait for the first record."""
    if not isinstance(limit, int) or isinstance(limit, bool) or limit < 0:
        raise error("bad_request", f"limit is a number of records from 0 on, not {limit!r:.100}")
    parts: list[Batch] = []
    count = 0
    waiting_until = deadline_in(wait)
    while count < limit and reader.after < end:
        left = 0.0 if count else max(0.0, waiting_until - time.monotonic())
        found = yield from reader.fetch(wait=left, timeout=timeout, records_max=limit - count)
        for one in found:
            parts.append(one.head(min(limit - count, end + 1 - one.first)))
            count += len(parts[-1])
            if count >= limit:
                break
        if not reader.has_more and (count or time.monotonic() >= waiting_until):
            break
    return Messages(parts)


def get(topic: str, pointer: int, timeout: float) -> ClientCall[Message]:
    """See `Client.get`."""
    gaps: list[Gap] = []
    before = max(0, check_pointer(pointer) - 1)
    reader = RecordReader(topic, before, gaps.append)
    for message in (yield from read(reader, POINTER_MAX, 1, 0.0, timeout)):
        if message.pointer == pointer:
            return message
    if any(gap.reason == "damaged" and gap.after < pointer < gap.next for gap in gaps):
        raise error("damaged", f"topic {topic!r}: the record {pointer} does not check")
    raise error("unknown_record", f"topic {topic!r} holds no record {pointer}")


def advance(
    topic: str, after: int, max_records: int | None, max_bytes: int | None, timeout: float
) -> ClientCall[Advance]:
    """See `Client.advance`."""
    limits = {"records_max": max_records, "bytes_max": max_bytes}
    given = {name: limit for name, limit in limits.items() if limit is not None}
    request = AdvanceTopic(check_pointer(after), **given)
    return ask(Advance, request, check_topic(topic), timeout=timeout)


def split(topic: str, after: int, until: int, parts: int, timeout: float) -> ClientCall[list[PointerRange]]:
    """See `Client.split`."""
    request = SplitTopic(check_pointer(after), check_pointer(until), parts)
    reply = yield from ask(Parts, request, check_topic(topic), timeout=timeout)
    return [PointerRange(*bounds) for bounds in reply.bounds]


def count(topic: str, after: int, until: int | None, timeout: float) -> ClientCall[Count]:
    """See `Client.count`."""
    request = CountTopic(check_pointer(after), POINTER_MAX if until is None else check_pointer(until))
    return ask(Count, request, check_topic(topic), timeout=timeout)


def stored(topic: str, after: int, until: int | None, on_gap: OnGap | None) -> StoredReader:
    """Return the reader for `Client.stored`. Raises `RequestError` for a range that ends before it begins."""
    end = POINTER_MAX if until is None else check_pointer(until)
    if end < check_pointer(after):
        raise error("bad_request", f"a range that begins after {after} and ends at {end}", "swap the two")
    return StoredReader(check_topic(topic), after, on_gap, end)
