"""Consuming in a process that traces: spans of blocks and of handlers, and headers from strangers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest
from opentelemetry import baggage, context, propagate, trace
from opentelemetry.context import Context
from opentelemetry.trace import NonRecordingSpan, SpanContext, SpanKind, StatusCode, TraceFlags

import quoth.aio
import quoth.tracing
from kit.client.loops import in_loop
from kit.deadlines import DEADLINE_S, eventually
from kit.tracing import Traces, context_in, ids_of
from quoth import Client, GroupMessage, Message

HOSTILE = {
    "no text": b"\xff\xfe\x00",
    "no form": b"garbage",
    "empty": b"",
    "zeros": b"00-00000000000000000000000000000000-0000000000000000-01",
    "version ff": b"ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    "capitals": b"00-0AF7651916CD43DD8448EB211C80319C-B7AD6B7169203331-01",
    "long": b"0" * 65_000,
    "long and well begun": b"01-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-" + b"a" * 60_000,
    "a line": b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01\n",
    "other digits": b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-0\xd9\xa1",
}


@pytest.fixture
def client(pooled: Client) -> Client:
    """A blocking client."""
    return pooled


@pytest.fixture
def begin(client: Client, pool: ThreadPoolExecutor) -> Iterator[Callable[[], Future[object]]]:
    """Begins a run of handlers in a thread, which ends with the test."""
    yield lambda: pool.submit(client.run)
    client.stop()


def published(client: Client, traces: Traces, topic: str, *values: bytes) -> list[tuple[int, int]]:
    """Publish records, each in a trace of its own with baggage; returns the ids of their spans."""
    for value in values:
        token = context.attach(baggage.set_baggage("value", value.decode()))
        client.publish(topic, value)
        context.detach(token)
    return [ids_of(one) for one in traces.named(f"publish {topic}")]


def test_a_message_is_consumed_in_the_trace_of_its_publish(
    client: Client, traces: Traces, topic: str
) -> None:
    (publish,) = published(client, traces, topic, b"1")
    with client.group(topic, "g") as group:
        for message in group.fetch(1):
            with quoth.tracing.consuming(message):
                inside = ids_of(trace.get_current_span().get_span_context())
                assert baggage.get_baggage("value") == "1"
            message.ack()
    span = traces.one(f"process {topic}")
    assert ids_of(span) == inside
    assert ids_of(span.parent) == publish
    assert [ids_of(link.context) for link in span.links] == [publish]
    assert span.kind is SpanKind.CONSUMER
    assert dict(span.attributes or {}) == {
        "messaging.system": "quoth",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.destination.name": topic,
        "messaging.consumer.group.name": "g",
        "messaging.message.id": str(message.pointer),
        "messaging.quoth.message.attempts": 1,
    }
    assert not trace.get_current_span().get_span_context().is_valid, "it is current in the block alone"


def test_a_span_around_the_work_stays_its_parent(client: Client, traces: Traces, topic: str) -> None:
    (publish,) = published(client, traces, topic, b"1")
    (message,) = client.read(topic)
    with (
        traces.tracer.start_as_current_span("request"),
        quoth.tracing.consuming(message, group="by hand"),
    ):
        assert baggage.get_baggage("value") == "1"
    span = traces.one(f"process {topic}")
    assert ids_of(span.parent) == ids_of(traces.one("request"))
    assert [ids_of(link.context) for link in span.links] == [publish]
    assert span.attributes is not None
    assert span.attributes["messaging.consumer.group.name"] == "by hand"


def test_a_batch_is_one_span_with_a_link_to_each_publish(client: Client, traces: Traces, topic: str) -> None:
    with traces.tracer.start_as_current_span("work"):
        client.publish(topic, [b"1", b"2"])
    client.publish(topic, b"3")
    publishes = [ids_of(one) for one in traces.named(f"publish {topic}")]
    with client.group(topic, "g") as group:
        for batch in group.batches(100):
            with quoth.tracing.consuming(batch):
                pass
            break
    with quoth.tracing.consuming(client.read(topic)), quoth.tracing.consuming([]):
        pass
    of_group, of_read = traces.named(f"process {topic}")
    assert of_group.parent is of_read.parent is None
    assert [ids_of(link.context) for link in of_read.links] == publishes
    assert [ids_of(link.context) for link in of_group.links] == publishes[:1]
    assert of_read.attributes is not None
    assert of_read.attributes["messaging.batch.message_count"] == 3


def test_an_error_that_leaves_the_block_is_noted(client: Client, traces: Traces, topic: str) -> None:
    published(client, traces, topic, b"1")
    with pytest.raises(ZeroDivisionError), quoth.tracing.consuming(client.read(topic)[0]):
        raise ZeroDivisionError("of the test")
    span = traces.one(f"process {topic}")
    assert span.status.status_code is StatusCode.ERROR
    assert span.status.description == "of the test"
    assert span.attributes is not None
    assert span.attributes["error.type"] == "ZeroDivisionError"
    assert [one.name for one in span.events] == ["exception"]


# -- handlers -----------------------------------------------------------------------------------------------


def test_a_handler_is_called_in_the_trace_of_its_message(
    client: Client, traces: Traces, topic: str, begin: Callable[[], Future[object]]
) -> None:
    """Also a second time, after an error; and a dead letter has the context of its record."""
    client._timing.group_wait = 0.1
    publishes = published(client, traces, topic, b"1", b"2")
    inside: list[tuple[bytes, tuple[int, int]]] = []

    @client.subscribe(topic, group="g", max_attempts=2, backoff=[0.0])
    def handle(message: GroupMessage) -> None:
        inside.append((message.value, ids_of(trace.get_current_span().get_span_context())))
        if message.value == b"2":
            raise ValueError("never")

    run = begin()
    eventually(lambda: [one.dead for one in client.groups(topic)] == [1], "it is a dead letter")
    client.stop()
    run.result(DEADLINE_S)
    spans = traces.named(f"process {topic}")
    assert sorted(inside) == sorted(
        (b"1" if ids_of(one.parent) == publishes[0] else b"2", ids_of(one)) for one in spans
    )
    failed = [one for one in spans if one.status.status_code is StatusCode.ERROR]
    assert [ids_of(one.parent) for one in failed] == [publishes[1]] * 2
    (letter,) = client.read(f"{topic}.g.dead")
    assert context_in(letter.headers) == publishes[1]
    assert letter.headers["baggage"] == b"value=2"


@in_loop
async def test_a_handler_of_a_loop_is_called_in_the_trace_of_its_message(
    client: quoth.aio.Client, traces: Traces, topic: str
) -> None:
    """A coroutine function all along, and whatever span is current where the run begins."""
    client._timing.group_wait = 0.1
    for number in range(10):
        await client.publish(topic, b"%d" % number)
    publishes = [ids_of(one) for one in traces.named(f"publish {topic}")]
    found: list[tuple[tuple[int, int], tuple[int, int]]] = []

    @client.subscribe(topic, group="g", concurrency=10)
    async def handle(message: GroupMessage) -> None:
        before = ids_of(trace.get_current_span().get_span_context())
        await asyncio.sleep(0)
        found.append((before, ids_of(trace.get_current_span().get_span_context())))
        if len(found) == 10:
            client.stop()

    with traces.tracer.start_as_current_span("main"):
        await asyncio.wait_for(client.run(), DEADLINE_S)
    spans = traces.named(f"process {topic}")
    assert sorted(found) == sorted((ids_of(one), ids_of(one)) for one in spans)
    assert sorted(ids_of(one.parent) for one in spans) == sorted(publishes)


# -- headers from strangers ---------------------------------------------------------------------------------


@pytest.mark.parametrize("value", HOSTILE.values(), ids=HOSTILE)
def test_a_context_that_cannot_be_read_is_no_context(
    client: Client, traces: Traces, topic: str, value: bytes
) -> None:
    client.publish(topic, b"1", headers={"traceparent": value})
    (message,) = client.read(topic)
    assert dict(message.headers) == {"traceparent": value}, "it is stored as it is"
    with quoth.tracing.consuming(message):
        pass
    with quoth.tracing.consuming([message]):
        pass
    single, several = traces.named(f"process {topic}")
    assert single.parent is several.parent is None
    assert not single.links
    assert not several.links
    found = trace.get_current_span(quoth.tracing.context_of(message, Context()))
    assert not found.get_span_context().is_valid


def test_hostile_state_and_baggage_leave_the_trace(traces: Traces) -> None:
    parent = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    for value in (*HOSTILE.values(), b"a=1," * 10_000, b"=" * 8_000, b",".join([b"k=v"] * 2_000)):
        headers = {"traceparent": parent, "tracestate": value, "baggage": value}
        found = quoth.tracing.context_of(Message("orders", 1, b"", None, headers))
        assert trace.get_current_span(found).get_span_context().span_id == 0xB7AD6B7169203331


def test_a_propagator_that_fails_makes_no_record_fail(
    traces: Traces, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Failing(type(propagate.get_global_textmap())):  # type: ignore[misc]
        def extract(self, *_: object, **__: object) -> Context:
            raise ValueError("of the test")

    monkeypatch.setattr(propagate, "_HTTP_TEXT_FORMAT", Failing([]))
    with quoth.tracing.consuming(Message("orders", 1, b"", None, {"traceparent": b"1"})):
        pass
    assert traces.one("process orders").parent is None


def test_a_context_is_added_to_another_one(traces: Traces) -> None:
    headers = {"baggage": b"a=1"}
    beneath = baggage.set_baggage("b", "2", Context())
    around = NonRecordingSpan(SpanContext(7, 8, False, TraceFlags(1)))
    beneath = trace.set_span_in_context(around, beneath)
    found = quoth.tracing.context_of(Message("orders", 1, b"", None, headers), beneath)
    assert baggage.get_all(found) == {"a": "1", "b": "2"}
    assert ids_of(trace.get_current_span(found).get_span_context()) == (7, 8)
