"""`quoth tail` and `quoth read` of several topics: names and patterns, merged or not."""

from __future__ import annotations

import json
import signal
from typing import Any

import pytest

from kit.broker.brokers import BrokerProcess
from kit.broker.peers import Context
from kit.broker.proxies import Meddler, pass_on
from kit.machine.commands import Command, Running
from quoth import Client
from quothwire.errors import error


@pytest.fixture
def names(topic: str) -> list[str]:
    """Three topics."""
    return [f"{topic}.{letter}" for letter in "abc"]


def test_read_of_a_pattern_and_names_prints_the_topic_of_each_record(
    quoth: Command, client: Client, topic: str, names: list[str]
) -> None:
    pointers = [client.publish(name, b"v").last for name in names]
    told = quoth("read", f"{topic}.[ab]", names[2])
    assert told.status == 0
    found = sorted(line.split("\t") for line in told.lines)
    assert [(name, int(pointer)) for name, pointer, *_ in found] == list(zip(names, pointers, strict=True))
    one = quoth("read", names[0])
    assert one.lines[0].startswith(f"{pointers[0]}\t"), "one topic needs no name"


def test_merged_records_come_in_the_order_of_time(
    quoth: Command, client: Client, topic: str, names: list[str]
) -> None:
    sent = [b"%d" % number for number in range(30)]
    for number, value in enumerate(sent):
        client.publish(names[number % 3], value)
    assert quoth("read", f"{topic}.*", "--merge", "--format", "raw").out.split() == sent
    assert quoth("read", *names, "--merge", "--limit", "5", "--format", "raw").out.split() == sent[:5]
    line = ("tail", *names, "--after", "0", "--limit", "30", "--format", "raw")
    assert quoth(*line, "--merge").out.split() == sent
    unordered = quoth(*line)
    assert (sorted(unordered.out.split()), unordered.err) == (sorted(sent), "")


def test_merged_tail_goes_on_with_topics_that_are_made_later(
    quoth: Command, client: Client, topic: str, names: list[str]
) -> None:
    tail = quoth.start("tail", f"{topic}.*", "--merge", "--after", "0", "--format", "raw")
    assert tail.error_line() == "quoth: no topic matches yet; waiting for one"
    sent = [b"%d" % number for number in range(9)]
    for number, value in enumerate(sent):
        client.publish(names[number % 3], value)
    assert [tail.line() for _ in sent] == [value.decode() for value in sent]
    assert tail.end(signal.SIGINT) == (0, b"", "")


def test_pattern_without_a_topic_is_refused(quoth: Command, topic: str) -> None:
    happened, _ = quoth("read", f"{topic}.*").refused(3)
    assert happened == f"quoth: unknown_topic: no topic matches '{topic}.*'"


def test_watermark_is_an_object_between_the_records(quoth: Command, client: Client, names: list[str]) -> None:
    """Without records it goes on, so that a window of time can be closed."""
    first = client.publish(names[0], b"1").last
    tail = quoth.start(
        "tail", *names, "--after", "0", "--merge", "--watermark", "--format", "jsonl", stderr=None
    )
    marks = [next_object(tail) for _ in range(3)]
    assert [mark.get("value") for mark in marks] == ["1", None, None]
    later = client.publish(names[1], b"2").last
    while (mark := next_object(tail)).get("value") is None:
        marks.append(mark)
    assert mark["pointer"] == later
    levels = [mark["watermark"] for mark in marks[1:]]
    assert levels == sorted({*levels}), "it never goes back"
    assert first <= levels[0] + 1
    assert levels[-1] < later
    tail.end(signal.SIGINT)


def next_object(tail: Running) -> dict[str, Any]:
    """Read the next object."""
    found = json.loads(tail.line())
    assert isinstance(found, dict)
    return found


def test_topic_that_a_merge_waits_for_is_reported_once(
    context: Context, broker: BrokerProcess, client: Client, running: list[Running], names: list[str]
) -> None:
    for name in names:
        client.publish(name, b"old")
    with Meddler(context, broker.url) as meddler:
        held = names[1].encode()
        meddler.on_request = lambda call: error("recovering", "of the test") if call.topic == held else False
        tail = Command(meddler.url, running).start(
            "tail", *names, "--after", "0", "--merge", "--limit", "3", "--format", "raw"
        )
        said = tail.error_line()
        assert said == f"quoth: records wait for topic {names[1]!r}: of the test"
        meddler.on_request = pass_on
        assert tail.end() == (0, b"old\nold\nold\n", "")
