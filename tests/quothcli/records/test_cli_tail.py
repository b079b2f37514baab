"""`quoth tail`: the last records, filters, several topics, a broker that is not there yet, a terminal."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import zmq

import quoth as library
from kit.broker.brokers import BrokerProcess, StartBroker
from kit.broker.peers import Context
from kit.broker.proxies import Meddler, pass_on
from kit.client.records import numbered
from kit.deadlines import DEADLINE_S, eventually
from kit.disk.damage import stored_batches, zero
from kit.machine.commands import Command, Running
from kit.machine.ports import free_port
from kit.machine.screens import Screen
from quoth import Client, Cursor
from quothwire import pointer as pointers
from quothwire.errors import error

Fill = Callable[..., list[int]]


# -- the last records -------------------------------------------------------------------------------


def test_tail_begins_with_the_last_records_and_goes_on(quoth: Command, client: Client, topic: str) -> None:
    """As `tail -n 8 -f` does. Batches of three, so that the eighth last lies inside of one."""
    for begin in range(0, 30, 3):
        client.publish(topic, numbered(3, begin))
    tail = quoth.start("tail", topic, "-n", "8", "--format", "raw")
    assert [tail.line() for _ in range(8)] == [str(number) for number in range(22, 30)]
    client.publish(topic, b"new")
    assert tail.line() == "new"
    assert tail.end(signal.SIGINT) == (0, b"", "")


def test_tail_of_more_records_than_there_are_prints_all(quoth: Command, client: Client, topic: str) -> None:
    """Trimmed records are not reported as a gap."""
    client.publish(topic, b"old")
    client.roll(topic)
    client.trim(topic, client.publish(topic, numbered(3)).first)
    assert quoth("tail", topic, "-n", "8", "--limit", "3", "--format", "raw") == (0, b"0\n1\n2\n", "")
    tail = quoth.start("tail", topic, "-n", "0", "--limit", "1", "--format", "raw")
    eventually(
        lambda: client.publish(topic, b"new") and tail.process.poll() is not None, "it prints what is new"
    )
    assert tail.end() == (0, b"new\n", "")


def test_last_records_of_several_topics_are_of_each_or_of_all_merged(
    quoth: Command, client: Client, topic: str
) -> None:
    names = [f"{topic}.{letter}" for letter in "ab"]
    for number, value in enumerate(numbered(20)):
        client.publish(names[number % 3 == 0], value)
    line = ("tail", f"{topic}.*", "-n", "4", "--format", "raw")
    expected = [value.decode() for number, value in enumerate(numbered(20)) if number % 3 == 0][-4:]
    expected += [value.decode() for number, value in enumerate(numbered(20)) if number % 3][-4:]
    assert sorted(quoth(*line, "--limit", "8").lines) == sorted(expected)
    assert quoth(*line, "--merge", "--limit", "4").lines == ["16", "17", "18", "19"]


DAMAGED: dict[str, tuple[tuple[int, ...], int, str, str]] = {
    # which batches are damaged, -n: values that are printed, what is reported to be damaged
    "oldest": ((0, 1), 4, "7 8 9 new", ""),
    "oldest, and some of them are asked for": ((0, 1), 9, "4 5 6 7 8 9 new", "4 records"),
    "oldest, and all are asked for": ((0, 1), 20, "4 5 6 7 8 9 new", "4 records"),
    "in the middle": ((3,), 6, "5 8 9 new", "2 records"),
    "newest": ((4,), 4, "7 new", "2 records"),
    "newest, and none is asked for": ((4,), 0, "new", ""),
    "all": ((0, 1, 2, 3, 4), 3, "new", "an unknown number of records"),
    "all, and none is asked for": ((0, 1, 2, 3, 4), 0, "new", ""),
}


def test_damaged_records_count_among_the_last_ones(
    start_broker: StartBroker, alone: Command, tmp_path: Path
) -> None:
    """Each topic has five batches of two records, in segments of two batches."""
    broker = start_broker()
    names = [f"t{number}" for number in range(len(DAMAGED))]
    with library.connect(broker.url) as client:
        logs = [client.create_topic(name, count_limit=4).log for name in names]
        for name in names:
            for begin in range(0, 10, 2):
                client.publish(name, numbered(2, begin))
            client.roll(name)
    assert broker.terminate() == 0
    for log, (batches, *_) in zip(logs, DAMAGED.values(), strict=True):
        stored = stored_batches(broker.topics_directory, log)
        for path, start, end, _ in map(stored.__getitem__, batches):
            zero(path, start, end)
    alone.url = broker.restart().url
    with library.connect(broker.url) as client:
        for name, (case, (_, number, values, missing)) in zip(names, DAMAGED.items(), strict=True):
            cursor = tmp_path / name
            options = ("-n", str(number), "--limit", str(len(values.split())), "--cursor", str(cursor))
            if number:
                client.publish(name, b"new")
            tail = alone.start("tail", name, *options, "--format", "raw")
            if not number:
                eventually(cursor.exists, "it has found where to begin")
                client.publish(name, b"new")
            status, out, said = tail.end()
            assert out.decode().split() == values.split(), case
            assert (status, said.count("\n")) == ((1, 1) if missing else (0, 0)), (case, said)
            assert said.startswith(f"quoth: {missing} gone, damaged: " if missing else ""), case


# -- filters ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["read", "tail --after 0"])
def test_filters_choose_records(quoth: Command, client: Client, topic: str, command: str) -> None:
    client.publish(
        topic,
        [b"one", b"two \xff", b"three", b"ONE", "\u00e9nd".encode()],
        key=[b"k", b"k", None, b"\xc3\xa9", b"kk"],
        headers=[{"a": b"1"}, {"a": b"2", "b": b""}, {}, {"b": b"x=y"}, {}],
    )
    name, *options = command.split()

    def found(*filters: str, limit: int = 1) -> list[str]:
        result = quoth(name, topic, *options, *filters, "--limit", str(limit), "--template", "{value}")
        assert result.status == 0, result
        return result.lines

    assert found("--key", "k", limit=2) == ["one", r"two \xff"]
    assert found("--key", "é") == ["ONE"]
    assert found("--grep", "(?i)^one$", limit=2) == ["one", "ONE"]
    assert found("--grep", "^[à-ü]nd$") == ["énd"]
    assert found("--grep", r"\udcff") == [r"two \xff"]
    assert found("--grep", "o \udcff") == [r"two \xff"], "the byte as it is"
    assert found("--header", "a", limit=2) == ["one", r"two \xff"]
    assert found("--header", "a=2") == [r"two \xff"]
    assert found("--header", "b=x=y") == ["ONE"]
    assert found("--header", "a", "--header", "b=") == [r"two \xff"]
    assert found("--key", "k", "--grep", "two") == [r"two \xff"]


def test_filtered_records_are_done_for_the_cursor(
    quoth: Command, fill: Fill, topic: str, tmp_path: Path
) -> None:
    stamps = fill(*numbered(6))
    path = tmp_path / "cursor"
    line = ("read", topic, "--cursor", str(path), "--grep", "[24]", "--format", "raw")

    def after() -> int | None:
        with Cursor(path) as cursor:
            return cursor.after(topic)

    assert quoth(*line, "--limit", "1").out == b"2\n"
    assert after() == stamps[2], "what comes behind the last one was not looked at"
    assert quoth(*line).out == b"4\n"
    assert after() == stamps[-1]


# -- a broker that is not there yet -----------------------------------------------------------------


def test_tail_waits_for_a_broker_and_names_it(start_broker: StartBroker, alone: Command) -> None:
    url = f"tcp://127.0.0.1:{(port := free_port())}"
    options = ("--after", "0", "--limit", "1", "--format", "raw", "--url", url)
    tail = alone.that_says_waits().start("tail", "t", *options)
    said = tail.error_line()
    assert said.startswith("quoth: ")
    assert url in said
    assert "waiting for it" in said
    broker = start_broker(port=port)
    assert tail.error_line() == f"quoth: the broker at {url} answers"
    with library.connect(broker.url) as client:
        client.publish("t", b"hello")
    assert tail.end() == (0, b"hello\n", "")


def test_tail_that_waits_for_a_broker_can_be_interrupted(alone: Command, context: Context) -> None:
    port = free_port()
    tail = alone.that_says_waits().start("tail", "t", "--url", f"tcp://127.0.0.1:{port}")
    assert "waiting for it" in tail.error_line()
    with context.socket(zmq.ROUTER) as silent:
        silent.bind(f"tcp://127.0.0.1:{port}")
        assert silent.poll(int(DEADLINE_S * 1_000)), "it asks, so it has made all of its sockets"
        assert tail.end(signal.SIGINT) == (0, b"", "")


# -- a terminal -------------------------------------------------------------------------------------


def test_terminal_shows_columns(quoth: Command, client: Client, topic: str) -> None:
    ack = client.publish(
        topic,
        [b"one", b"two\n\xe2\x80\xae", b"three"],
        key=[b"customer-1", None, b"c-2"],
        headers={"h": b"\x9b"},
    )
    texts = map(pointers.to_text, range(ack.first, ack.last + 1))
    (date, *_), times = zip(*(text.split("T") for text in texts), strict=True)
    screen = Screen(24, 80)
    lines = screen.ended(screen.show(quoth, "tail", topic, "-n", "3", "--limit", "3"))
    assert lines == [
        f"--- {date} UTC ---",
        f"{times[0][:12]}  customer-1  one  h=\\x9b",
        f"{times[1][:12]}              two\\n\\u202e  h=\\x9b",
        f"{times[2][:12]}  c-2         three  h=\\x9b",
    ]
    assert "\x1b[36mcustomer-1\x1b[0m" in screen.seen


def test_terminal_without_colours_gets_none(quoth: Command, fill: Fill, topic: str) -> None:
    (pointer,) = fill(b"one")
    for environment in ({"NO_COLOR": "1"}, {"TERM": "dumb"}):
        screen = Screen(24, 80, environment)
        names = (topic, f"{topic}-not-yet")
        tail = screen.show(quoth, "tail", *names, "-n", "1", "--limit", "1", "--pointers")
        _, line = screen.ended(tail)
        parts = line.split()
        assert (parts[0], parts[2:]) == (str(pointer), [topic, "one"])
        assert "\x1b" not in screen.seen


def test_terminal_gets_a_chosen_format_as_a_pipe_does(quoth: Command, fill: Fill, topic: str) -> None:
    fill(b"one")
    for options in (("--format", "text"), ("--template", "{pointer}\t{time}\t{value}")):
        piped = quoth("tail", topic, "-n", "1", "--limit", "1", *options).lines
        screen = Screen(24, 80)
        assert screen.ended(screen.show(quoth, "tail", topic, "-n", "1", "--limit", "1", *options)) == piped


# -- progress ---------------------------------------------------------------------------------------


def test_progress_bar_never_shares_a_line_with_output(
    quoth: Command, broker: BrokerProcess, client: Client, topic: str, tmp_path: Path
) -> None:
    """On one terminal for stdout and stderr, the bar is erased before a line and drawn again below."""
    names = [f"{topic}.{letter}" for letter in "abc"]
    for name in names:
        client.publish(name, [b"x" * 1_000] * 1_000)
    screen = Screen(24, 80)
    folder = str(tmp_path / "saved")
    options = [word for name in names for word in ("--topic", name)]
    backup = screen.show(quoth, "backup", str(broker.directory), folder, *options, errors=True)
    screen.ended(backup)
    assert "copying " in screen.seen
    erased = "\r\n\x1b[?25h\r\x1b[1A\x1b[2K"
    rows = re.sub(rf"[^\n]*{re.escape(erased)}", "", screen.seen).replace("\r\n", "\n").split("\n")
    assert all("copying " not in row for row in rows), "a bar was not erased before a line"
    assert [row.partition(":")[0] for row in rows if topic in row] == names
    assert os.path.isdir(folder)


# -- several topics -------------------------------------------------------------------------------


@pytest.fixture
def names(topic: str) -> list[str]:
    """Three topics."""
    return [f"{topic}.{letter}" for letter in "abc"]


def test_read_of_a_pattern_and_names_prints_the_topic_of_each_record(
    quoth: Command, client: Client, topic: str, names: list[str]
) -> None:
    pointers = [client.publish(name, b"v").last for name in names]
    result = quoth("read", f"{topic}.[ab]", names[2])
    assert result.status == 0
    found = sorted(line.split("\t") for line in result.lines)
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


RARE_LOOKS = "from quothcli.commands.records import reading; reading.LOOK_S = 3.0"
"""A prelude: the answers of all topics have come before the second look, which alone reports, also if the
machine is busy."""


def test_topic_that_a_merge_waits_for_is_reported_once(
    context: Context, broker: BrokerProcess, client: Client, running: list[Running], names: list[str]
) -> None:
    for name in names:
        client.publish(name, b"old")
    with Meddler(context, broker.url) as meddler:
        held = names[1].encode()
        meddler.on_request = lambda call: error("recovering", "of the test") if call.topic == held else False
        tail = Command(meddler.url, running, RARE_LOOKS).start(
            "tail", *names, "--after", "0", "--merge", "--limit", "3", "--format", "raw"
        )
        said = tail.error_line()
        assert said == f"quoth: records wait for topic {names[1]!r}: of the test"
        meddler.on_request = pass_on
        assert tail.end() == (0, b"old\nold\nold\n", "")


def test_topic_that_a_merge_waits_for_is_reported_after_a_time_without_records(
    context: Context, broker: BrokerProcess, client: Client, running: list[Running], names: list[str]
) -> None:
    for name in names:
        client.create_topic(name)
    held = names[1].encode()
    with Meddler(context, broker.url) as meddler:
        meddler.on_request = lambda call: error("recovering", "of the test") if call.topic == held else False
        looks = "from quothcli.commands.records import reading; reading.LOOK_S = 0.01"
        tail = Command(meddler.url, running, looks).start(
            "tail", *names, "--after", "0", "--merge", "--format", "raw"
        )
        eventually(
            lambda: sum(call.topic == held for call in meddler.requests) > 5,
            "it has looked in vain meanwhile",
        )
        client.publish(names[0], b"new")
        report = f"quoth: records wait for topic {names[1]!r}: of the test"
        assert report in iter(tail.error_line, "")
        meddler.on_request = pass_on
        assert tail.line() == "new"
