"""The calls of a client: the requests of each, and the evaluation of the answers.

Each call is a generator of requests. A client makes a method of it that sends them, and waits or awaits, see
`method_of` and `coroutine_of`.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Coroutine
from dataclasses import replace
from inspect import Parameter, Signature, signature
from typing import Any, Concatenate, ParamSpec, TypeVar, Unpack

from quoth.core.options import Timing, as_seconds, deadline_in
from quoth.core.paging import PageReader, ReadOptions
from quoth.core.request_state import ClientCall, RequestState
from quoth.message import Gap, Message, PointerRange
from quoth.timestamps import Timestamp, as_pointer
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
    Ping,
    Pong,
    Request,
    RollTopic,
    SplitTopic,
    Status,
    TopicInfo,
    Topics,
    Trimmed,
    TrimTopic,
    UpdateTopic,
    Welcome,
)
from quothwire.protocol.metric_messages import GetMetrics, Metrics
from quothwire.settings import GivenSettings, as_sent
from quothwire.text.quantity import format_span
from quothwire.topic import check_topic

METRICS_TOPICS = 200
"""Topics in one reply about metrics: the broker serves others every millisecond."""
A = TypeVar("A")
R = TypeVar("R")
S = TypeVar("S")
T = TypeVar("T")
M = TypeVar("M", bound=Callable[..., Any])
P = ParamSpec("P")
_RESULT = re.compile(r"\w+Call\[(.*)\]")
"""The type of a call, and in it that of its result."""


def ask(kind: type[R], request: Request, topic: str = "", *, timeout: float) -> ClientCall[R]:
    """Send one request, and return the reply, which is of the given kind.

    timeout: seconds that the broker may take to answer.
    """
    reply = (yield RequestState(request, topic, deadline=deadline_in(timeout))).reply
    assert isinstance(reply, kind)
    return reply


def method_of(
    call: Callable[Concatenate[Any, P], A], begin: Callable[[S, A], T], result: str = ""
) -> Callable[Concatenate[S, P], T]:
    """Return a method that begins with what a call returns. result: its type if it is not the call's."""

    def method(owner: S, /, *values: P.args, **named: P.kwargs) -> T:
        return begin(owner, call(owner, *values, **named))

    return _documented(method, call, begin, result)


def coroutine_of(
    call: Callable[Concatenate[Any, P], A], begin: Callable[[S, A], Coroutine[Any, Any, T]], result: str = ""
) -> Callable[Concatenate[S, P], Coroutine[Any, Any, T]]:
    """Return a coroutine method that awaits what begins with a call: see `method_of`."""

    async def method(owner: S, /, *values: P.args, **named: P.kwargs) -> T:
        return await begin(owner, call(owner, *values, **named))

    return _documented(method, call, begin, result)


def _documented(method: M, call: Callable[..., Any], begin: Callable[..., Any], result: str) -> M:
    """Give a method the text and the signature of its call, and a place in the class of `begin`."""
    made: Any = method
    made.__name__, made.__module__ = call.__name__, begin.__module__
    made.__qualname__ = f"{begin.__qualname__.rpartition('.')[0]}.{call.__name__}"
    result = result or _RESULT.sub(r"\1", call.__annotations__["return"])
    made.__doc__, made.__annotations__ = call.__doc__, {**call.__annotations__, "return": result}
    _, *parameters = signature(call).parameters.values()
    parameters.insert(0, Parameter("self", Parameter.POSITIONAL_OR_KEYWORD))
    made.__signature__ = Signature(parameters, return_annotation=result)
    made.__wrapped__ = call  # its module has the names of the annotations
    return method


class ClientState:
    """The state of a client that its calls need."""

    def __init__(self, url: str, timeout: float) -> None:
        self.url = url
        self.timeout = timeout
        self._timing = Timing()
        self._payload_bytes_max = wire.BATCH_BYTES_MAX
        """The bytes of the largest batch that the broker takes."""

    _run: Callable[[ClientCall[Any]], Any]
    """Executes a call; in an event loop it returns a coroutine."""
    _requests: Callable[[], Any]
    """Returns a multiplexer of requests, which the caller closes."""


# -- reading ------------------------------------------------------------------------------------------------


def get(client: ClientState, topic: str, pointer: int) -> ClientCall[Message]:
    """Read the record with exactly this pointer. Raises `NotFound`, or `Damaged` for a damaged record."""
    gaps: list[Gap] = []
    first = ReadOptions(topic, max(0, check_pointer(pointer) - 1), False, POINTER_MAX, 1, 0.0, gaps.append)
    for message in (yield from PageReader(first).read(first, client.timeout)):
        if message.pointer == pointer:
            return message
    if any(gap.reason == "damaged" and gap.after < pointer < gap.next for gap in gaps):
        raise error("damaged", f"topic {topic!r}: the record {pointer} does not check")
    raise error("unknown_record", f"topic {topic!r} holds no record {pointer}")


# -- ranges -------------------------------------------------------------------------------------------------


def advance(
    client: ClientState,
    topic: str,
    after: int = 0,
    *,
    max_records: int | None = None,
    max_bytes: int | None = None,
) -> ClientCall[Advance]:
    """Find out how far the next records above a pointer reach, up to a number of records or bytes.

    max_bytes: of whole stored batches, at least one.
    """
    limits = {"records_max": max_records, "bytes_max": max_bytes}
    given = {name: limit for name, limit in limits.items() if limit is not None}
    request = AdvanceTopic(check_pointer(after), **given)
    return ask(Advance, request, check_topic(topic), timeout=client.timeout)


def split(
    client: ClientState, topic: str, after: int, until: int, parts: int
) -> ClientCall[list[PointerRange]]:
    """Divide the records above `after` up to `until` into at most so many parts, between batches.

    No part is empty, and no part has more than twice its share of the records, unless it is one batch.
    """
    request = SplitTopic(check_pointer(after), check_pointer(until), parts)
    reply = yield from ask(Parts, request, check_topic(topic), timeout=client.timeout)
    return [PointerRange(*bounds) for bounds in reply.bounds]


def count(client: ClientState, topic: str, after: int = 0, until: int | None = None) -> ClientCall[Count]:
    """Count the records and bytes above `after` up to `until`, inclusive, without reading them.

    until: None for what is there now.
    """
    request = CountTopic(check_pointer(after), POINTER_MAX if until is None else check_pointer(until))
    return ask(Count, request, check_topic(topic), timeout=client.timeout)


# -- topics -------------------------------------------------------------------------------------------------


def topics(client: ClientState) -> ClientCall[list[str]]:
    """Return the names of all topics, in the order of their UTF-8 bytes."""
    names: list[str] = []
    while True:
        after = names[-1] if names else ""
        reply = yield from ask(Topics, ListTopics(after=after), timeout=client.timeout)
        if not reply.names:
            return names
        names += reply.names


def topic(client: ClientState, topic: str) -> ClientCall[TopicInfo]:
    """Describe one topic. Does not open a hibernating one."""
    return ask(TopicInfo, DescribeTopic(), check_topic(topic), timeout=client.timeout)


def create_topic(client: ClientState, topic: str, **settings: Unpack[GivenSettings]) -> ClientCall[TopicInfo]:
    """Create a topic: ``create_topic("orders", max_age="7d", max_bytes="1GiB", durability="synced")``.

    Other settings are those of the broker's configuration; see `quothwire.settings.TopicSettings`.
    Raises `Conflict` ``topic_exists``, `RequestError` ``bad_setting``.
    """
    given = as_sent(settings)
    create = RequestState(CreateTopic(dict(given)), check_topic(topic), deadline=deadline_in(client.timeout))
    try:
        reply = (yield create).reply
    except Conflict:
        if not create.unanswered:
            raise
        # A copy without an answer may have created it: then the topic has the given settings.
        reply = (yield RequestState(DescribeTopic(), topic, deadline=create.deadline)).reply
        assert isinstance(reply, TopicInfo)
        if reply.settings != {**reply.settings, **given}:
            raise
    assert isinstance(reply, TopicInfo)
    return reply


def update_topic(client: ClientState, topic: str, **settings: Unpack[GivenSettings]) -> ClientCall[TopicInfo]:
    """Change settings of a topic, given as for `create_topic`; the others stay as they are."""
    return ask(TopicInfo, UpdateTopic(as_sent(settings)), check_topic(topic), timeout=client.timeout)


def delete_topic(client: ClientState, topic: str) -> ClientCall[Trimmed]:
    """Delete a topic and its records; returns the number of removed records and bytes.

    Deletes only the topic that exists now, not one that another client creates meanwhile under its name.
    Returns zeros if a request whose answer was lost has deleted it. Raises `NotFound` ``unknown_topic``.
    """
    deadline = deadline_in(client.timeout)
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


def trim(client: ClientState, topic: str, before: Timestamp) -> ClientCall[Trimmed]:
    """Remove the segments that hold only records before a pointer or a time."""
    return ask(Trimmed, TrimTopic(as_pointer(before)), check_topic(topic), timeout=client.timeout)


def roll(client: ClientState, topic: str) -> ClientCall[TopicInfo]:
    """Seal the topic's active segment."""
    return ask(TopicInfo, RollTopic(), check_topic(topic), timeout=client.timeout)


# -- the broker ---------------------------------------------------------------------------------------------


def hello(client: ClientState) -> ClientCall[Welcome]:
    """Return the broker's version, its limits and the address of its announcements."""
    return _greet(client, client.timeout)


def status(client: ClientState) -> ClientCall[Status]:
    """Return the broker's status, with the states of all topics. Does not open hibernating ones."""
    first = last = yield from ask(Status, GetStatus(after=""), timeout=client.timeout)
    states = dict(first.states)
    while last.states:
        last = yield from ask(Status, GetStatus(after=list(last.states)[-1]), timeout=client.timeout)
        states |= last.states
    return replace(first, states=states)


def metrics(client: ClientState, since: int = 0) -> ClientCall[Metrics]:
    """Return what the broker has done since its start, and all topics with their groups.

    since: the `serial` of an earlier result: only the topics that have changed since. `topics`, their number,
    shows that one was deleted. Does not open hibernating topics.
    """
    first = last = yield from ask(Metrics, _next_metrics(since, None), timeout=client.timeout)
    rows = {row["name"]: row for row in first.rows}
    while last.more:
        last = yield from ask(Metrics, _next_metrics(since, last), timeout=client.timeout)
        rows |= {row["name"]: row for row in last.rows}
    return replace(first, serial=last.serial if since else first.serial, rows=[*rows.values()], more=False)


def _next_metrics(since: int, last: Metrics | None) -> GetMetrics:
    """Return the request that goes on after a reply."""
    if since:
        return GetMetrics(since=since if last is None else last.serial, limit=METRICS_TOPICS)
    return GetMetrics("" if last is None else last.rows[-1]["name"], limit=METRICS_TOPICS)


def ping(client: ClientState) -> ClientCall[float]:
    """Return the seconds that a round trip takes, including the way through an event loop."""
    began = time.perf_counter()
    yield from ask(Pong, Ping(), timeout=client.timeout)
    return time.perf_counter() - began


def _greet(client: ClientState, seconds: float) -> ClientCall[Welcome]:
    welcome = yield from ask(Welcome, Hello("quoth-python"), timeout=seconds)
    frame_bytes_max: int = welcome.limits.get("frame_bytes_max", wire.BATCH_BYTES_MAX)
    client._payload_bytes_max = min(wire.BATCH_BYTES_MAX, frame_bytes_max)
    return welcome


def begin(client: ClientState, wait: float | None) -> ClientCall[Welcome]:
    """Greet the broker that was connected to. wait: seconds to wait for it, None for the timeout.

    Raises `Disconnected` with the reason and the time waited.
    """
    if wait is None:
        return (yield from _greet(client, client.timeout))
    seconds = as_seconds(wait, "wait")
    try:
        return (yield from _greet(client, seconds))
    except Disconnected as problem:
        if problem.code != "timed_out":  # else the text says how long already
            raise
        silence = f"it takes connections, and has answered nothing for {format_span(seconds)}"
        raise error(problem.code, f"{problem.text}: {silence}", problem.hint) from problem
