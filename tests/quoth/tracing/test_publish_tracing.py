"""Publishing in a process that traces: the context that records carry, and the spans of a publish."""

from __future__ import annotations

import asyncio
from urllib.parse import urlsplit

import pytest
from opentelemetry import baggage, context, trace
from opentelemetry.trace import NonRecordingSpan, SpanContext, SpanKind, StatusCode, TraceFlags
from opentelemetry.trace.span import TraceState

import quoth.aio
import quoth.tracing
from kit.broker.brokers import BrokerProcess
from kit.broker.proxies import Meddler
from kit.client.loops import in_loop
from kit.client.records import publishes
from kit.tracing import Traces, context_in, ids_of
from quoth import Client, RequestError
from quothwire import batch
from quothwire.headers import HEADERS_BYTES_MAX, encode_headers

OWN = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture
def client(pooled: Client) -> Client:
    """A blocking client: the current span is that of the thread. The asyncio client has tests in loops."""
    return pooled


# -- publish ------------------------------------------------------------------------------------------------


def test_a_publish_makes_a_span_whose_context_its_records_carry(
    client: Client, traces: Traces, topic: str
) -> None:
    headers: list[dict[str, bytes]] = [{"a": b"1"}, {}, {"a": b"1"}]
    with traces.tracer.start_as_current_span("work"):
        client.publish(topic, [b"1", b"2", b"3"], headers=headers)
    span, work = traces.one(f"publish {topic}"), traces.one("work")
    assert ids_of(span.parent) == ids_of(work)
    assert span.kind is SpanKind.PRODUCER
    address = urlsplit(client.url)
    assert dict(span.attributes or {}) == {
        "messaging.system": "quoth",
        "messaging.operation.name": "publish",
        "messaging.operation.type": "send",
        "messaging.destination.name": topic,
        "messaging.batch.message_count": 3,
        "server.address": address.hostname,
        "server.port": address.port,
    }
    found = client.read(topic)
    assert {context_in(one.headers) for one in found} == {ids_of(span)}
    assert [{k: v for k, v in one.headers.items() if k != "traceparent"} for one in found] == headers


def test_a_publish_outside_of_a_span_begins_a_trace(client: Client, traces: Traces, topic: str) -> None:
    """And that of one record has the pointer as the id of its message."""
    ack = client.publish(topic, b"1")
    span = traces.one(f"publish {topic}")
    assert span.parent is None
    assert span.attributes is not None
    assert span.attributes["messaging.message.id"] == str(ack.first)
    assert "messaging.batch.message_count" not in span.attributes
    assert context_in(client.read(topic)[0].headers) == ids_of(span)


def test_a_publish_that_fails_is_a_span_with_its_error(
    client: Client, own_client: Client, traces: Traces, topic: str
) -> None:
    with pytest.raises(RequestError):
        client.publish(f"{topic}/", b"1")
    span = traces.one(f"publish {topic}/")
    assert span.status.status_code is StatusCode.ERROR
    assert span.attributes is not None
    assert span.attributes["error.type"] == "bad_topic"


@in_loop
async def test_a_publish_of_a_task_is_a_child_of_its_span(
    client: quoth.aio.Client, traces: Traces, topic: str
) -> None:
    async def publish(name: str) -> None:
        with traces.tracer.start_as_current_span(name):
            await client.publish(topic, name.encode())

    await asyncio.gather(*(publish(f"task {number}") for number in range(20)))
    parents = {ids_of(one): ids_of(one.parent) for one in traces.named(f"publish {topic}")}
    found = await client.read(topic)
    assert len(found) == len(parents) == 20
    for message in found:
        assert parents[context_in(message.headers)] == ids_of(traces.one(message.value.decode()))


@in_loop
async def test_a_cancelled_publish_ends_its_span(
    client: quoth.aio.Client, meddler: Meddler, traces: Traces, topic: str
) -> None:
    meddler.on_request = publishes
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(client.publish(topic, b"1"), 0.05)
    span = traces.one(f"publish {topic}")
    assert span.attributes is not None
    assert span.attributes["error.type"] == "cancelled"


# -- a producer ---------------------------------------------------------------------------------------------


def test_a_producer_sends_the_context_of_the_current_span(client: Client, traces: Traces, topic: str) -> None:
    """Of each record, through batches that are full, and without a span of its own."""
    with client.producer(topic, batch=3) as producer:
        for number in range(20):
            with traces.tracer.start_as_current_span(f"work {number}"):
                producer.send(b"%d" % number, headers={"a": b"1"} if number % 2 else None)
        producer.send(b"20", headers={"a": b"1"})
    *found, last = client.read(topic)
    assert [context_in(one.headers) for one in found] == [
        ids_of(traces.one(f"work {number}")) for number in range(20)
    ]
    assert [one.headers.get("a") for one in found] == [None, b"1"] * 10
    assert dict(last.headers) == {"a": b"1"}, "no span was current"
    assert not traces.named(f"publish {topic}")


@in_loop
async def test_a_producer_sends_the_context_of_each_task(
    client: quoth.aio.Client, traces: Traces, topic: str
) -> None:
    async with client.producer(topic, batch=3, max_buffer=3) as producer:

        async def send(name: str) -> None:
            with traces.tracer.start_as_current_span(name):
                await producer.send(name.encode())

        await asyncio.gather(*(send(f"task {number}") for number in range(30)))
    found = await client.read(topic)
    assert len(found) == 30
    for message in found:
        assert context_in(message.headers) == ids_of(traces.one(message.value.decode()))


# -- what a record has already ------------------------------------------------------------------------------


def test_headers_of_the_application_are_never_replaced(client: Client, traces: Traces, topic: str) -> None:
    """A record with a context keeps it, and gets nothing that belongs to another one."""
    around = NonRecordingSpan(SpanContext(7, 8, False, TraceFlags(1), TraceState([("vendor", "1")])))
    own = {"traceparent": OWN, "x": b"1"}
    token = context.attach(baggage.set_baggage("shop", "main", trace.set_span_in_context(around)))
    try:
        client.publish(topic, b"1", headers=own)
        client.publish(topic, b"2", headers={"baggage": b"mine=1"})
        with client.producer(topic) as producer:
            producer.send(b"3", headers=own)
            producer.send(b"4", headers={"tracestate": b"mine=1"})
            producer.send(b"5", headers={"baggage": b"mine=1"})
            producer.send(b"6")
    finally:
        context.detach(token)
    found = {int(one.value): dict(one.headers) for one in client.read(topic)}
    assert found[1] == found[3] == own
    assert found[4] == {"tracestate": b"mine=1"}
    for number in (2, 5):
        assert context_in(found[number])[0] == 7
        assert found[number]["baggage"] == b"mine=1"
        assert found[number]["tracestate"] == b"vendor=1"
    assert context_in(found[6]) == (7, 8)
    assert found[6]["baggage"] == b"shop=main"
    first, _ = traces.named(f"publish {topic}")
    (link,) = first.links
    assert link.context.trace_id == 0x0AF7651916CD43DD8448EB211C80319C, "the publish is linked to it"


def full(name: str) -> dict[str, bytes]:
    """Return headers that have all the bytes that a record may have."""
    headers = {name: bytes(HEADERS_BYTES_MAX)}
    headers[name] = bytes(2 * HEADERS_BYTES_MAX - len(encode_headers({name: bytes(60_000)})) - 5_535)
    assert len(encode_headers(headers)) == HEADERS_BYTES_MAX
    return headers


def test_a_record_without_room_is_published_without_a_context(
    client: Client, traces: Traces, topic: str
) -> None:
    headers = full("x")
    with traces.tracer.start_as_current_span("work"):
        client.publish(topic, [b"1", b"2"], headers=[headers, {}])
        with client.producer(topic) as producer:
            producer.send(b"3", headers=headers)
            producer.send(b"4")
    found = {int(one.value): dict(one.headers) for one in client.read(topic)}
    assert found[1] == found[3] == headers
    assert context_in(found[2])[0] == context_in(found[4])[0] == ids_of(traces.one("work"))[0]


def test_the_largest_record_is_published_without_a_context(
    client: Client, traces: Traces, topic: str
) -> None:
    limit = client._payload_bytes_max
    largest = bytes(limit - len(batch.encode([bytes(8)])) + 8)
    assert len(batch.encode([largest])) == limit
    with traces.tracer.start_as_current_span("work"):
        client.publish(topic, largest)
        with client.producer(topic) as producer:
            producer.send(largest[:-128])
    assert [(len(one.value), dict(one.headers)) for one in client.read(topic)] == [
        (len(largest), {}),
        (len(largest) - 128, {}),
    ]


def test_wrong_headers_have_the_error_that_they_have_without_a_trace(
    client: Client, traces: Traces, topic: str
) -> None:
    wrong: list[object] = [{"a": "text"}, {1: b""}, ["a"], 5]
    with traces.tracer.start_as_current_span("work"), client.producer(topic) as producer:
        producer.send(b"1")
        for headers in wrong:
            with pytest.raises(RequestError):
                producer.send(b"2", headers=headers)  # type: ignore[arg-type]
            with pytest.raises(RequestError):
                client.publish(topic, b"2", headers=headers)  # type: ignore[arg-type]
    assert [one.value for one in client.read(topic)] == [b"1"]


def test_headers_for_a_log_of_its_own_have_the_current_context(traces: Traces) -> None:
    assert quoth.tracing.with_context({"a": b"1"}) == {"a": b"1"}
    with traces.tracer.start_as_current_span("work") as span:
        found = quoth.tracing.with_context({"a": b"1"})
        assert quoth.tracing.with_context({"traceparent": OWN}) == {"traceparent": OWN}
        assert quoth.tracing.with_context(full("x")) == full("x")
    assert context_in(found) == ids_of(span.get_span_context())
    assert found["a"] == b"1"


def test_topics_of_the_broker_have_no_traces(own_broker: BrokerProcess, traces: Traces) -> None:
    """The rules process writes its state every few seconds."""
    with quoth.connect(own_broker.url) as client, traces.tracer.start_as_current_span("work"):
        client.publish("quoth.rules.stats", b"{}")
        assert dict(client.read("quoth.rules.stats")[0].headers) == {}
    assert traces.names == ["work"]
