"""Rules in a process that traces, or not: one trace from the publish through rules and groups to the end."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from opentelemetry import baggage, context
from opentelemetry.trace import SpanKind, StatusCode

import quoth
import quoth.tracing
from kit.broker.brokers import BrokerProcess, StartBroker
from kit.deadlines import DEADLINE_S, eventually
from kit.rules import add_rules
from kit.tracing import Traces, context_in, ids_of, traced
from quoth import Client, Message, NotFound
from quothrules.service.rules_service import RulesService

OWN = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
BAGGAGE = b"shop=main"


@pytest.fixture
def broker(start_broker: StartBroker) -> BrokerProcess:
    """A broker of each test alone, which runs no rules itself."""
    return start_broker(rules=False)


@pytest.fixture
def traces() -> Iterator[Traces]:
    """Lets the process of the test trace."""
    with traced() as traces:
        yield traces


@contextmanager
def routing(broker: BrokerProcess) -> Iterator[None]:
    """Run the rules of a broker in a thread."""
    with quoth.connect(broker.url) as client:
        service = RulesService(client, report=lambda *_, **__: None)
        thread = threading.Thread(target=service.run)
        thread.start()
        try:
            yield
        finally:
            service.stop()
            thread.join(DEADLINE_S)
            assert not thread.is_alive()


def arrived(client: Client, topic: str, count: int = 1) -> list[Message]:
    """Wait for records of a topic."""

    def found() -> list[Message]:
        try:
            there = list(client.read(topic))
        except NotFound:
            return []
        return there if len(there) >= count else []

    return eventually(found, f"{count} records in {topic}")


RULES = """
topics = "orders"
[[rule]]
name = "copies"
to = ["large", "audit"]
set_headers = { kind = "copy" }
"""


def test_a_record_has_one_trace_from_its_publish_through_a_rule_to_its_last_member(
    client: Client, broker: BrokerProcess, traces: Traces
) -> None:
    """With each span a child of the one before, and its baggage at the end."""
    add_rules(client, "copies", RULES)
    token = context.attach(baggage.set_baggage("shop", "main"))
    with routing(broker):
        with traces.tracer.start_as_current_span("work"):
            client.publish("orders", b"1")
        arrived(client, "audit")
        arrived(client, "large")
    context.detach(token)
    with client.group("large", "billing") as group:
        (message,) = group.fetch(1)
        with quoth.tracing.consuming(message):
            assert baggage.get_baggage("shop") == "main"
            with client.producer("done") as producer:
                producer.send(b"1")
        message.ack()
    chain = ["work", "publish orders", "process orders", "publish large", "process large"]
    spans = [traces.one(name) for name in chain]
    assert [ids_of(one.parent) for one in spans[1:]] == [ids_of(one) for one in spans[:-1]]
    assert [one.kind for one in spans[1:]] == [SpanKind.PRODUCER, SpanKind.CONSUMER] * 2
    assert {ids_of(one)[0] for one in spans} == {ids_of(spans[0])[0]}
    assert ids_of(traces.one("publish audit").parent) == ids_of(traces.one("process orders"))
    assert context_in(client.read("done")[0].headers) == ids_of(spans[-1])
    assert [ids_of(link.context) for link in spans[2].links] == [ids_of(spans[1])]
    _, _, process, publish, _ = (dict(one.attributes or {}) for one in spans)
    assert process["messaging.consumer.group.name"] == "rules.copies"
    assert process["messaging.destination.name"] == "orders"
    assert publish["messaging.destination.name"] == "large"
    assert all(one.status.status_code is StatusCode.UNSET for one in spans)
    assert sorted(traces.names) == sorted([*chain, "publish audit"])


ACTIONS = {
    "to": 'to = "out"',
    "a template": 'to = "{headers[to]}"',
    "set_headers": 'to = "out"\nset_headers = { a = "1" }',
    "remove_headers": 'to = "out"\nremove_headers = "to"',
    "continue": 'continue = true\nset_headers = { a = "1" }\n[[rule]]\nto = "out"',
    "sample": 'to = "out"\nsample = 1.0',
    "dedupe": 'to = "out"\ndedupe = { span = "1m", by = "{pointer}" }',
    "delay": 'to = "out"\ndelay = "10ms"',
}
HEADERS = {"to": b"out", "traceparent": OWN, "tracestate": b"a=1", "baggage": BAGGAGE}


@pytest.mark.parametrize("action", ACTIONS.values(), ids=ACTIONS)
def test_a_rule_hands_the_context_of_a_record_on(client: Client, broker: BrokerProcess, action: str) -> None:
    """Unchanged, byte by byte, in a process that does not trace."""
    add_rules(client, "r", f'topics = "orders"\n[[rule]]\n{action}')
    with routing(broker):
        client.publish("orders", b"1", headers=HEADERS)
        (found,) = arrived(client, "out")
    assert {name: found.headers[name] for name in HEADERS if name != "to"} == {
        name: value for name, value in HEADERS.items() if name != "to"
    }


@pytest.mark.parametrize("action", ACTIONS.values(), ids=ACTIONS)
def test_a_rule_that_traces_writes_its_own_context(
    client: Client, broker: BrokerProcess, traces: Traces, action: str
) -> None:
    add_rules(client, "r", f'topics = "orders"\n[[rule]]\n{action}')
    with routing(broker):
        client.publish("orders", b"1", headers=HEADERS)
        (found,) = arrived(client, "out")
    assert context_in(found.headers) == ids_of(traces.one("publish out"))
    assert context_in(found.headers)[0] == 0x0AF7651916CD43DD8448EB211C80319C
    assert (found.headers["tracestate"], found.headers["baggage"]) == (b"a=1", BAGGAGE)


@pytest.mark.parametrize(
    ("action", "expected"),
    [('set_headers = { traceparent = "own" }', b"own"), ('remove_headers = "traceparent"', None)],
    ids=["set", "removed"],
)
def test_a_context_that_a_rule_changes_stays_as_it_says(
    client: Client, broker: BrokerProcess, traces: Traces, action: str, expected: bytes | None
) -> None:
    add_rules(client, "r", f'topics = "orders"\n[[rule]]\nto = "out"\n{action}')
    with routing(broker):
        client.publish("orders", b"1", headers=HEADERS)
        (found,) = arrived(client, "out")
    assert found.headers.get("traceparent") == expected


def test_a_record_without_a_trace_gets_none_from_a_rule(
    client: Client, broker: BrokerProcess, traces: Traces
) -> None:
    """Nor does one whose header cannot be read: it goes on as it is."""
    add_rules(client, "r", 'topics = "orders"\n[[rule]]\nto = "out"')
    wrong: list[bytes] = [b"garbage", b"\xff", bytes(60_000)]
    with routing(broker):
        client.publish("orders", [b"1"] * 3, headers=[{"traceparent": one} for one in wrong])
        found = arrived(client, "out", 3)
    assert [one.headers["traceparent"] for one in found] == wrong
    assert traces.names == ["publish orders"]


def test_the_spans_of_a_record_that_fails_say_why_and_its_dead_letter_has_its_context(
    start_broker: StartBroker, traces: Traces
) -> None:
    """One target does not exist. The other one has the record once, under the span of the first attempt."""
    broker = start_broker(rules=False, auto_create=False)
    with quoth.connect(broker.url) as client:
        for topic in ("quoth.rules", "quoth.rules.stats", "orders", "out", "orders.rules.r.dead"):
            client.create_topic(topic)
        add_rules(client, "r", 'topics = "orders"\nattempts = 2\n[[rule]]\nto = ["out", "missing"]')
        with routing(broker):
            client.publish("orders", b"1", headers=HEADERS)
            (letter,) = arrived(client, "orders.rules.r.dead")
        (found,) = client.read("out")
    assert {name: letter.headers[name] for name in HEADERS} == HEADERS
    assert b"unknown_topic" in letter.headers["quoth-reason"]
    assert context_in(found.headers) == ids_of(traces.one("publish out"))
    process, stored, refused = map(traces.one, ("process orders", "publish out", "publish missing"))
    assert stored.status.status_code is StatusCode.UNSET
    assert process.status.status_code is refused.status.status_code is StatusCode.ERROR
    assert "unknown_topic" in (process.status.description or "")
    assert refused.attributes is not None
    assert refused.attributes["error.type"] == "unknown_topic"


def test_the_process_of_the_broker_traces_where_its_environment_sets_that_up(
    start_broker: StartBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As `opentelemetry-instrument` does it: a module that each process of Python loads first."""
    spans = tmp_path / "spans"
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(
        f"""
import os, sys
if "quothrules" in sys.orig_argv:
    from opentelemetry import trace
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor
    out = open({str(spans)!r}, "a")
    exporter = ConsoleSpanExporter(out=out, formatter=lambda span: span.name + "\\n")
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
"""
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "site"))
    broker = start_broker()
    with quoth.connect(broker.url) as client:
        add_rules(client, "r", 'topics = "orders"\n[[rule]]\nto = "out"')
        client.publish("orders", b"1", headers=HEADERS)
        (found,) = arrived(client, "out")
        trace_id, span_id = context_in(found.headers)
        assert trace_id == 0x0AF7651916CD43DD8448EB211C80319C
        assert span_id != 0xB7AD6B7169203331, "it is that of a span of the rules"
        expected = ["publish out", "process orders"]
        eventually(lambda: spans.exists() and spans.read_text().splitlines() == expected, "they are exported")
