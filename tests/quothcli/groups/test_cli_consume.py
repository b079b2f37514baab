"""`quoth consume` prints the records of a group, and acknowledges what was printed."""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

import quoth as library
from kit.broker.brokers import StartBroker
from kit.client.records import numbered
from kit.deadlines import eventually, hold
from kit.machine.commands import Command
from kit.machine.ports import free_port
from kit.machine.screens import Screen
from quoth import Client

Fill = Callable[..., list[int]]


def test_members_share_the_records(quoth: Command, topic: str, fill: Fill) -> None:
    stamps = fill(b"a", b"b", b"c", b"d")
    consume = ("consume", topic, "--group", "g")
    first = quoth(*consume, "--limit", "2", "--format", "raw")
    assert (first.status, first.lines) == (0, ["a", "b"])
    assert first.err == f"quoth: made group 'g' of topic '{topic}', which begins with the oldest record\n"
    (third,) = quoth(*consume, "--limit", "1", "--format", "json").objects
    assert (third["value"], third["pointer"], third["attempts"]) == ("c", stamps[2], 1)
    assert quoth(*consume, "--until-empty", "--template", "{pointer} {value}") == (
        0, f"{stamps[3]} d\n".encode(), "",
    )  # fmt: skip
    assert quoth(*consume, "--until-empty") == (0, b"", ""), "nothing is left"
    assert quoth("read", topic, "--format", "raw").lines == ["a", "b", "c", "d"]


def test_output_can_be_published_again(quoth: Command, client: Client, topic: str) -> None:
    client.publish(topic, [b"a", b"\xff"], key=b"k", headers={"h": b"1"})
    out = quoth("consume", topic, "-g", "g", "--until-empty", "--format", "json").out
    assert quoth("pub", f"{topic}.copy", "--json", stdin=out).status == 0
    copies = [(one.value, one.key, dict(one.headers)) for one in client.read(f"{topic}.copy")]
    assert copies == [(b"a", b"k", {"h": b"1"}), (b"\xff", b"k", {"h": b"1"})]


def test_batch_prints_lines_of_json(quoth: Command, topic: str, fill: Fill) -> None:
    fill(*numbered(5))
    for options in ((), ("--format", "json"), ("--format", "jsonl")):
        found = quoth(
            "consume",
            topic,
            "-g",
            f"g{len(options)}{options[-1:]}",
            "--batch",
            "2",
            "--until-empty",
            *options,
        )
        assert [one["value"] for one in found.objects] == [str(number) for number in range(5)]


def test_a_new_group_has_the_given_settings(quoth: Command, topic: str, fill: Fill) -> None:
    stamps = fill(b"a", b"b")
    consume = ("consume", topic, "-g", "g", "--lease", "5m", "--until-empty", "--format", "raw")
    begun = quoth(*consume, "--start", str(stamps[1]), "--member", "me")
    assert begun.lines == ["b"]
    (found,) = quoth("group", "info", topic, "g", "--format", "json").objects
    assert (found["settings"]["lease"], found["members"][0]["name"]) == (300.0, "me")
    assert quoth(*consume) == (0, b"", ""), "the settings are those that it has"
    said = quoth(*consume, "--start", "begin").err
    assert said == "quoth: group 'g' goes on where it is; --start says where a new one begins\n"
    happened, advice = quoth("consume", topic, "-g", "g", "--lease", "7").refused(1)
    assert happened == f"quoth: group_exists: group 'g' of topic '{topic}': lease is 300.0"
    assert "quoth group set" in advice
    near = quoth("consume", topic, "-g", "gg", "--until-empty", "--start", "end")
    assert near.err.endswith("which begins with what comes now; did you mean 'g'?\n")


def test_it_follows_and_waits_for_topic_and_broker(
    start_broker: StartBroker, alone: Command, tmp_path: Path
) -> None:
    port = free_port()
    alone.url = f"tcp://127.0.0.1:{port}"
    consume = alone.that_says_waits().start("consume", "t", "-g", "g", "--format", "raw")
    assert "waiting for it, Ctrl-C ends that" in consume.error_line()
    broker = start_broker(port=port)
    assert "answers" in consume.error_line()
    assert consume.error_line().startswith("quoth: made topic 't' and its group 'g', ")
    with library.connect(broker.url, wait=20) as client:
        client.publish("t", [b"a", b"b"])
        assert (consume.line(), consume.line()) == ("a", "b")
        group = client.group("t", "g", create=False)
        eventually(lambda: group.lag().records == 0, "it has acknowledged them")
        assert broker.terminate() == 0
        broker.restart()
        client.publish("t", b"c", timeout=20)
    assert consume.line() == "c"
    assert consume.end(signal.SIGINT).status == 0


ENDS = {signal.SIGINT: 0, signal.SIGTERM: 143}


@pytest.mark.parametrize("number", ENDS)
def test_signal_ends_it_with_all_that_was_printed_acknowledged(
    quoth: Command, client: Client, topic: str, tmp_path: Path, number: signal.Signals
) -> None:
    path = tmp_path / "out"
    count = 0
    for _ in range(3):
        count += client.publish(topic, numbered(40_000, count)).count
        with path.open("ab") as out:
            before = path.stat().st_size
            consume = quoth.start("consume", topic, "-g", "g", "--format", "raw", stdout=out)
            eventually(lambda: path.stat().st_size > before, "it prints")  # noqa: B023
            assert consume.end(number).status == ENDS[number]
        printed = path.read_bytes().splitlines()
        info = client.group(topic, "g", create=False).info()
        assert (info.lag, info.in_flight) == (count - len(printed), 0)
    with path.open("ab") as out:
        assert (
            quoth.start("consume", topic, "-g", "g", "--format", "raw", "--until-empty", stdout=out)
            .end()
            .status
            == 0
        )
    assert path.read_bytes().splitlines() == numbered(count), "each once, in their order"


def test_interrupt_is_success_for_one_that_follows_and_not_for_one_that_was_to_end(
    quoth: Command, client: Client, topic: str
) -> None:
    consume = quoth.start("consume", topic, "-g", "g", "--format", "raw")
    consume.error_line()
    group = client.group(topic, "g", create=False)
    eventually(lambda: group.info().members, "it waits")
    assert consume.end(signal.SIGINT) == (0, b"", "")
    client.publish(topic, numbered(100_000))
    reading, writing = os.pipe()
    consume = quoth.start("consume", topic, "-g", "g", "--format", "raw", "--until-empty", stdout=writing)
    os.close(writing)
    with os.fdopen(reading, "rb") as out:
        out.readline()
        os.kill(consume.process.pid, signal.SIGINT)
        out.read()
    assert consume.end().status == 130


def test_end_of_the_reader_ends_it(quoth: Command, client: Client, topic: str) -> None:
    client.publish(topic, b"a")
    for group, publishes in (("waits", False), ("prints", True)):
        consume = quoth.start("consume", topic, "-g", group, "--format", "raw")
        consume.error_line()
        assert consume.line() == "a"
        if publishes:
            client.publish(topic, numbered(50_000))
            consume.line()
        consume.close_output()
        ended = consume.end()
        assert (ended.status, ended.err) == (0, "")
        assert client.group(topic, group, create=False).info().in_flight == 0, "what was not printed is free"


@pytest.mark.parametrize("number", ENDS)
@pytest.mark.parametrize("size", [10, 6_000])
def test_signal_ends_it_while_the_reader_takes_nothing(
    quoth: Command, client: Client, topic: str, number: signal.Signals, size: int
) -> None:
    """Acknowledges what was written to the pipe, and releases everything else."""
    client.publish(topic, [b"%*d" % (size, row) for row in range(10_000_000 // (size + 1_000))])
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as out, os.fdopen(writing, "wb") as end:
        consume = quoth.start("consume", topic, "-g", "g", "--format", "raw", stdout=end)
        eventually(lambda: not select.select([], [end], [], 0)[1], "the pipe is full")
        hold(lambda: consume.process.poll() is None, "it waits for the reader", 0.3)
        assert consume.end(number).status == ENDS[number]
        end.close()
        printed = out.read().splitlines()
    whole = [int(line) for line in printed if len(line) == size]
    info = client.group(topic, "g", create=False).info()
    assert whole == list(range(len(whole)))
    assert info.in_flight == 0
    assert client.count(topic).records - info.lag == len(whole) > 0
    again = quoth("consume", topic, "-g", "g", "--limit", "1", "--format", "json").objects
    assert [(int(one["value"]), one["attempts"]) for one in again] == [(len(whole), 1)]


@pytest.mark.parametrize("options", [("--mode", "at_most_once"), ("--max-attempts", "1")])
def test_one_record_is_in_hand_where_the_death_of_the_member_takes_it_from_the_group(
    quoth: Command, client: Client, topic: str, options: tuple[str, str]
) -> None:
    count = 3_000
    client.publish(topic, [b"%1000d" % row for row in range(count)])
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as out, os.fdopen(writing, "wb") as end:
        consume = quoth.start("consume", topic, "-g", "g", *options, "--format", "raw", stdout=end)
        eventually(lambda: not select.select([], [end], [], 0)[1], "the pipe is full")
        info = client.group(topic, "g", create=False).info
        eventually(lambda: info().in_flight <= 1, "the others are acknowledged")
        consume.end(signal.SIGKILL)
        end.close()
        printed = len(out.read().splitlines())
    group = info()
    assert printed <= count - (group.lag - group.in_flight) <= printed + 1


def test_terminal_shows_columns(quoth: Command, client: Client, topic: str) -> None:
    stamp = client.publish(topic, b"hello", key=b"k").first
    screen = Screen(24, 80)
    running = screen.show(quoth, "consume", topic, "-g", "g", "--limit", "1", "--pointers")
    date, line = screen.ended(running)
    assert date.startswith("--- ")
    assert line.split()[::3] == [str(stamp), "hello"]


def test_gone_records_are_reported(quoth: Command, client: Client, topic: str) -> None:
    assert quoth("group", "create", topic, "g").status == 0
    client.publish(topic, [b"a", b"b"])
    client.roll(topic)
    client.trim(topic, client.publish(topic, b"c").first)
    ended = quoth("consume", topic, "-g", "g", "--until-empty", "--format", "raw")
    assert (ended.status, ended.lines) == (0, ["c"])
    assert ended.err.startswith("quoth: 2 records gone, trimmed: ")


def test_group_that_is_moved_or_deleted(quoth: Command, client: Client, topic: str) -> None:
    client.publish(topic, [b"a", b"b"])
    consume = quoth.start("consume", topic, "-g", "g", "--format", "raw")
    assert [consume.line() for _ in range(2)] == ["a", "b"]
    group = client.group(topic, "g", create=False)
    group.seek("begin")
    assert [consume.line() for _ in range(2)] == ["a", "b"]
    group.delete()
    ended = consume.end()
    assert ended.status == 3
    assert "quoth: unknown_group: " in ended.err


def test_cursor_has_no_members(quoth: Command, topic: str, fill: Fill) -> None:
    fill(b"a")
    assert quoth("group", "create", topic, "c", "--mode", "cursor").status == 0
    happened, advice = quoth("consume", topic, "-g", "c").refused(2)
    assert happened.startswith(f"quoth: bad_request: group 'c' of topic '{topic}' is a cursor")
    assert "quoth read" in advice
