"""A process that does not trace, or has not installed what it would need, loads nothing and loses nothing."""

from __future__ import annotations

import pytest

from kit.broker.brokers import BrokerProcess
from kit.machine.commands import run_script

BLOCKED = """
import sys
class Blocked:
    def find_spec(self, name, *_):
        if name.partition(".")[0] == "opentelemetry":
            raise ImportError("not installed")
sys.meta_path.insert(0, Blocked())
"""
"""As if the API was not installed."""
WORK = """
import asyncio, sys, threading, quoth, quoth.aio, quoth.tracing
url, topic = sys.argv[1:3]
with quoth.connect(url) as client:
    client._timing.group_wait = 0.1
    client.publish(topic, [b"1", b"2"], headers={"traceparent": b"garbage"})
    with client.producer(topic) as producer:
        producer.send(b"3", headers=quoth.tracing.with_context({"a": b"1"}))
    with client.group(topic, "g") as group:
        for message in group.fetch(3):
            with quoth.tracing.consuming(message):
                message.ack()

    @client.subscribe(topic, group="h")
    def handle(message):
        if message.value == b"3":
            client.stop()

    (counts,) = client.run()
    assert counts.handled >= 1, counts
    headers = [dict(one.headers) for one in client.read(topic)]
    assert headers == [{"traceparent": b"garbage"}] * 2 + [{"a": b"1"}], headers

async def main():
    async with quoth.aio.connect(url) as client:
        client._timing.group_wait = 0.1
        await client.publish(topic, b"4")

        @client.subscribe(topic, group="i", start="begin")
        async def handle(message):
            with quoth.tracing.consuming(message):
                if message.value == b"4":
                    client.stop()

        await client.run()

asyncio.run(main())
assert quoth.tracing.headers_from_http({"Traceparent": "x"}) == {}
loaded = [name for name in sys.modules if name.partition(".")[0] == "opentelemetry"]
print(len(loaded), "quoth.tracing.spans" in sys.modules)
"""


@pytest.mark.parametrize("prelude", [BLOCKED, ""], ids=["not installed", "not used"])
def test_a_program_that_does_not_trace_loads_nothing(broker: BrokerProcess, topic: str, prelude: str) -> None:
    ended = run_script(prelude + WORK, broker.url, topic)
    assert (ended.stderr, ended.stdout) == ("", "0 False\n")


def test_the_context_of_a_message_needs_the_api() -> None:
    script = "import quoth, quoth.tracing\nquoth.tracing.context_of(quoth.Message('a', 1, b'', None, {}))"
    ended = run_script(BLOCKED + script)
    assert ended.stderr.endswith("ImportError: not installed\n")


@pytest.mark.parametrize("names", ["flask, quoth", "*"])
def test_the_variable_for_unwanted_instrumentations_turns_it_off(
    broker: BrokerProcess, topic: str, names: str
) -> None:
    prelude = f"""
import os
os.environ["OTEL_PYTHON_DISABLED_INSTRUMENTATIONS"] = {names!r}
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
trace.set_tracer_provider(TracerProvider())
work = trace.get_tracer("a program").start_as_current_span("work")
work.__enter__()
"""
    ended = run_script(prelude + WORK, broker.url, topic)
    assert ended.stderr == ""
    assert ended.stdout.endswith(" False\n")


def test_a_program_with_the_api_and_without_the_sdk_hands_a_trace_on(
    broker: BrokerProcess, topic: str
) -> None:
    """Without spans: records carry the context that the program was given."""
    script = """
import sys, quoth, quoth.tracing
import opentelemetry.trace
url, topic = sys.argv[1:3]
parent = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
with quoth.connect(url) as client:
    client.publish(topic, b"1")
    client.publish(topic, b"2", headers={"traceparent": parent})
    first, second = client.read(topic)
    with quoth.tracing.consuming(first):
        client.publish(topic, b"3")
    with quoth.tracing.consuming(second), client.producer(topic) as producer:
        client.publish(topic, b"4")
        producer.send(b"5")
    found = [one.headers.get("traceparent") for one in client.read(topic)]
    assert found == [None, parent, None, parent, parent], found
"""
    ended = run_script(script, broker.url, topic)
    assert (ended.stderr, ended.returncode) == ("", 0)
