"""`quoth read`, `get` and `tail` print records, `count` and `split` tell what a range holds; pipes close."""

from __future__ import annotations

import base64
import os
import signal
from collections.abc import Callable

from kit.broker.brokers import BrokerProcess, StartBroker
from kit.broker.peers import Peers
from kit.deadlines import eventually
from kit.disk.damage import with_headers
from kit.machine.commands import Command, Running
from kit.machine.screens import Screen
from quothwire import batch
from quothwire import pointer as pointers
from quothwire.headers import encode_headers
from quothwire.protocol.messages import Publish

Fill = Callable[..., list[int]]


# -- read and get -----------------------------------------------------------------------------------


def test_read_prints_every_format(quoth: Command, topic: str, fill: Fill) -> None:
    (pointer,) = fill(b"caf\xc3\xa9")
    time = pointers.to_text(pointer)
    assert quoth("read", topic).lines == [f"{pointer}\t{time}\tcafé"]
    assert quoth("read", topic, "--format", "raw").out == "café\n".encode()
    (found,) = quoth("read", topic, "--format", "json").objects
    assert found == {
        "topic": topic, "pointer": pointer, "time": time, "key": None, "value": "café", "headers": {},
    }  # fmt: skip


def test_read_begins_and_ends_where_options_say(quoth: Command, topic: str, fill: Fill) -> None:
    first = fill(*(b"%d" % number for number in range(5)))
    second = fill(*(b"%d" % number for number in range(5, 10)))
    stamps = [*first, *second]

    def read(*options: str) -> str:
        result = quoth("read", topic, "--format", "raw", *options)
        assert result.status == 0, result
        return "".join(result.lines)

    assert read() == "0123456789"
    assert read("--after", str(stamps[2])) == "3456789"
    assert read("--since", str(stamps[2])) == "23456789"
    assert read("--since", pointers.to_text(stamps[7])) == "789"
    assert read("--since", "-1h", "--until", str(stamps[6])) == "012345"
    assert read("--until", "-1h") == ""
    assert read("--limit", "3") == "012"
    assert read("--after", str(stamps[1]), "--limit", "5") == "23456"
    assert read("--limit", "0") == ""


def test_pointer_above_the_newest_record_is_reported_and_a_time_is_not(
    quoth: Command, topic: str, fill: Fill
) -> None:
    (pointer,) = fill(b"value")
    result = quoth("read", topic, "--after", str(pointer + 5))
    text = f"what is read begins at pointer {pointer + 6}, above the newest record, {pointer}"
    assert (result.status, result.lines, result.err) == (0, [], f"quoth: topic {topic!r}: {text}\n")
    result = quoth("read", topic, "--since", "2100-01-01")
    assert (result.status, result.lines, result.err) == (0, [], "")


def test_trimmed_records_in_the_middle_of_a_tail_are_reported(
    start_broker: StartBroker, running: list[Running], peers: Peers, topic: str
) -> None:
    broker = start_broker()
    fast, quoth = peers.fast(broker), Command(broker.url, running)
    assert quoth("topic", "create", topic, "--count-limit", "2").status == 0
    fast.publish(topic, [b"0", b"1"])
    tail = quoth.start("tail", topic, "--after", "0", "--limit", "6", "--format", "raw")
    assert [tail.line() for _ in range(2)] == ["0", "1"]
    eventually(lambda: fast.status(limit=0).waits == 1, "it waits for more")
    os.kill(tail.process.pid, signal.SIGSTOP)
    acks = [fast.publish(topic, [b"%d" % row, b"%d" % (row + 1)]) for row in (2, 4, 6, 8)]
    assert quoth("topic", "trim", topic, "--before", str(acks[-1].first), "--yes").status == 0
    result = tail.end(signal.SIGCONT)
    assert (result.status, result.lines) == (0, ["2", "3", "8", "9"])
    assert result.err == (
        f"quoth: 4 records gone, trimmed: behind pointer {acks[0].last}, "
        f"resumes at pointer {acks[-1].first}, ordinals 4 to 7\n"
    )


def test_get_takes_a_pointer_or_a_time(quoth: Command, topic: str, fill: Fill) -> None:
    stamps = fill(b"one", b"two", b"three")
    assert quoth("get", topic, str(stamps[1]), "--format", "raw").out == b"two\n"
    assert quoth("get", topic, pointers.to_text(stamps[2]), "--format", "raw").out == b"three\n"
    happened, _ = quoth("get", topic, str(stamps[2] + 1)).refused(3)
    assert happened.startswith("quoth: unknown_record: ")


def test_headers_that_cannot_be_decoded_are_printed_as_bytes(
    quoth: Command, broker: BrokerProcess, peers: Peers, topic: str, fill: Fill
) -> None:
    """An older broker stored them."""
    good, bad = encode_headers({"n": b"0123"}), b"\x81\xa1n\xa5te\x1bt!"
    published = peers.fast(broker).call(Publish(), topic, batch.encode([b"a", b"b"], headers=[b"", good]))
    with_headers(broker.topics_directory, published.log, good, bad)
    fill(b"d")
    problem = "the record's headers are no map of text to binary: the value of 'n' is text, not binary"
    for command in (("read", topic), ("tail", topic, "--after", "0", "--limit", "3")):
        result = quoth(*command, "--format", "raw")
        assert (result.status, result.out, result.err) == (0, b"a\nb\nd\n", ""), result
        _, found, _ = quoth(*command, "--format", "json").objects
        assert (found["value"], found["headers"], found["headers_problem"]) == ("b", {}, problem)
        assert base64.b64decode(found["raw_headers_base64"]) == bad
        _, line, _ = quoth(*command, "--format", "text").lines
        assert line.endswith(f"\tb\t({problem}: \\x81\\xa1n\\xa5te\\x1bt!)")
        template = "{value}|{headers_problem}|{raw_headers}|{raw_headers!raw}"
        lines = quoth(*command, "--template", template).out.split(b"\n")
        assert lines == [
            b"a|||", rf"b|{problem}|\x81\xa1n\xa5te\x1bt!|".encode() + bad, b"d|||", b""
        ]  # fmt: skip
    screen = Screen(24, 200)
    running = screen.show(quoth, "tail", topic, "--after", "0", "--limit", "3")
    _, _, line, _ = screen.ended(running)
    assert line.endswith(f"  b  ({problem}: \\x81\\xa1n\\xa5te\\x1bt!)")


# -- tail -------------------------------------------------------------------------------------------


# -- the reader of the output -----------------------------------------------------------------------


def test_read_ends_silently_when_its_reader_ends_or_it_is_interrupted(
    quoth: Command, topic: str, fill: Fill
) -> None:
    fill(*[b"x" * 1_000] * 1_000)
    read = quoth.start("read", topic)
    assert read.line()
    read.close_output()
    assert read.end() == (0, b"", "")
    read = quoth.start("read", topic)
    assert read.line()
    ended = read.end(signal.SIGINT)
    assert (ended.status, ended.err) == (130, "")


def test_stderr_without_a_reader_ends_nothing(quoth: Command, topic: str, fill: Fill) -> None:
    fill(b"one")
    reading, writing = os.pipe()
    os.close(reading)
    options = ["--merge", "--watermark", "--after", "0", "--limit", "2", "--format", "raw"]
    tail = quoth.start("tail", topic, *options, stderr=writing)
    os.close(writing)
    assert tail.line() == "one"
    fill(b"two")
    assert tail.line() == "two"
    assert tail.end().status == 0


# -- count and split ------------------------------------------------------------------------------


def test_count_of_a_range(quoth: Command, topic: str, fill: Fill) -> None:
    stamps = fill(b"one", b"two", b"three")
    (found,) = quoth("count", topic, "--format", "json").objects
    assert (found["records"], found["first"], found["last"]) == (3, stamps[0], stamps[2])
    between = quoth("count", topic, "--after", str(stamps[0]), "--until", str(stamps[2]))
    assert between.out.startswith(b"1 record, ")
    assert quoth("count", topic, "--since", str(stamps[1]), "--format", "raw").out == b"2\n"
    nothing = quoth("count", topic, "--after", str(stamps[2]))
    assert (nothing.status, nothing.out) == (0, b"0 records, 0 B\n")


def test_until_excludes_its_record_for_read_count_and_split(quoth: Command, topic: str, fill: Fill) -> None:
    """Ranges that touch count each record once."""
    stamps = fill(b"one", b"two", b"three")
    for until in (0, *stamps, stamps[-1] + 1):
        read = quoth("read", topic, "--until", str(until)).lines
        assert quoth("count", topic, "--until", str(until), "--format", "raw").lines == [str(len(read))]
        rest = quoth("count", topic, "--since", str(until), "--format", "raw").lines
        assert rest == [str(len(stamps) - len(read))]
    assert quoth("split", topic, "--parts", "1", "--until", str(stamps[2]), "--format", "raw").lines == [
        f"0 {stamps[1]}"
    ]


def test_split_gives_ranges_of_whole_batches(quoth: Command, topic: str, fill: Fill) -> None:
    stamps = [*fill(b"one", b"two"), *fill(b"three")]
    parts = quoth("split", topic, "--parts", "2", "--format", "jsonl").objects
    assert [(one["after"], one["until"], one["records"]) for one in parts] == [
        (0, stamps[1], 2),
        (stamps[1], stamps[2], 1),
    ]
    assert quoth("split", topic, "--parts", "1", "--format", "raw").out == b"0 %d\n" % stamps[2]
    assert quoth("split", topic, "--parts", "1", "--after", str(stamps[2])).out == b""


def test_range_that_is_swapped_or_of_no_topic_is_refused(quoth: Command, topic: str, fill: Fill) -> None:
    (stamp,) = fill(b"one")
    happened, _ = quoth("count", topic, "--after", str(stamp), "--until", "1").refused(2)
    assert happened.startswith("quoth: bad_request: ")
    quoth("count", f"{topic}-none").refused(3)
