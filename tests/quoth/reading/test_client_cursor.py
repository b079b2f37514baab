"""Cursors in files: what they hold, what they refuse, and where a reader goes on with them."""

from __future__ import annotations

import gc
import json
import os
import signal
import subprocess
import sys
from contextlib import closing
from itertools import islice, product
from pathlib import Path
from typing import Any

import pytest

from kit.broker.brokers import BrokerProcess
from kit.broker.peers import refused
from kit.deadlines import eventually
from kit.machine.processes import listing
from kit.machine.tracing import CHANGES, Fault, calls_in, needs_strace, traced
from quoth import Client, Cursor, Gap, Message, Position, QuothError

POINTER = 1_767_323_045_000_001
TIME = "2026-01-02T03:04:05.000001Z"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The path of the cursor."""
    return tmp_path / "orders.cursor"


def message(pointer: int, topic: str = "orders") -> Message:
    """A record."""
    return Message(topic, pointer, b"", None, {})


def kept(path: Path) -> dict[str, int | None]:
    """Return the cursor as a later program finds it."""
    with Cursor(path) as cursor:
        return {topic: cursor.after(topic) for topic in cursor.topics}


# -- what it holds ------------------------------------------------------------------------------------------


def test_a_cursor_keeps_the_newest_pointer_of_each_topic(path: Path) -> None:
    """The file is written when it is closed, also by an exception, and only if it has changed."""

    def work() -> None:
        with Cursor(path) as cursor:
            assert (cursor.after("orders"), cursor.position("orders"), cursor.topics) == (None, None, [])
            for pointer in (5, POINTER, 7):
                cursor.advance(message(pointer))
            cursor.advance("größe", 7)
            assert cursor.after("orders") == POINTER
            assert not path.exists()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        work()
    assert kept(path) == {"orders": POINTER, "größe": 7}
    before = path.stat()
    with Cursor(path) as cursor:
        cursor.advance("orders", 5)
        cursor.save()
    assert (path.stat().st_ino, path.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_a_cursor_is_readable_text(path: Path, tmp_path: Path) -> None:
    """A link to it stays a link."""
    link = tmp_path / "link"
    link.symlink_to(path)
    with Cursor(link) as cursor:
        cursor.begin("orders", Position(POINTER, 0x5BE1, 1_000))
        cursor.advance("other", 5)
    assert link.is_symlink()
    orders = {"after": POINTER, "time": TIME, "log": "0000000000005be1", "ordinal": 1_000}
    other = {"after": 5, "time": "1970-01-01T00:00:00.000005Z"}
    assert json.loads(path.read_text()) == {"cursor": 1, "topics": {"orders": orders, "other": other}}
    with Cursor(path) as cursor:
        assert cursor.position("orders") == Position(POINTER, 0x5BE1, 1_000)
        assert cursor.position("other") == Position(5)


def test_wrong_topics_and_pointers_are_refused(path: Path) -> None:
    wrong: list[Any] = [("orders", -1), ("orders", 2**56), ("a/b", 1), ("orders",)]
    with Cursor(path) as cursor:
        for arguments in wrong:
            with refused("bad_topic" if arguments[0] == "a/b" else "bad_pointer"):
                cursor.advance(*arguments)


# -- files that are none ------------------------------------------------------------------------------------


def content(topics: dict[str, Any]) -> bytes:
    """A file with these topics."""
    return json.dumps({"cursor": 1, "topics": topics}).encode()


GOOD = {"after": POINTER, "time": TIME, "log": "0000000000005be1", "ordinal": 1}
WRONG: list[tuple[str, Any]] = [
    ("after", POINTER + 1), ("after", -1), ("after", "5"), ("after", None), ("time", "yesterday"),
    ("log", 5), ("log", "xyz"), ("log", "x" * 16), ("ordinal", -2), ("ordinal", 1.5), ("ordinal", True),
]  # fmt: skip
CONTENTS: dict[str, bytes] = {
    "empty": b"",
    "not UTF-8": b"\xff\xfe",
    "cut": content({"orders": GOOD})[:-20],
    "zeros": bytes(100),
    "a list": b"[]",
    "a number": b"7",
    "something else": b'{"name": "orders"}',
    "topics are a list": b'{"cursor": 1, "topics": []}',
    "a version that is none": b'{"cursor": "one", "topics": {}}',
    "nested too deep": b"[" * 100_000,
    "another version": b'{"cursor": 2, "topics": {"orders": "in another way"}}',
    **{f"{key}: {value!r}": content({"t": {**GOOD, key: value}}) for key, value in WRONG},
    "a name that is none": content({"a/b": GOOD}),
}


def test_a_file_that_is_no_cursor_is_named_and_unchanged(path: Path) -> None:
    for name, data in CONTENTS.items():
        path.write_bytes(data)
        with pytest.raises(QuothError, match=r"orders\.cursor") as caught:
            Cursor(path)
        assert caught.value.code == ("unsupported_version" if name == "another version" else "damaged"), name
        assert path.read_bytes() == data


def test_every_flipped_bit_of_a_pointer_is_detected(path: Path) -> None:
    with Cursor(path) as cursor:
        cursor.advance("orders", POINTER)
    content = path.read_bytes()
    at = content.index(b"%d" % POINTER)
    for place in range(at, at + len(str(POINTER))):
        for digit in b"0123456789".replace(content[place : place + 1], b""):
            path.write_bytes(content[:place] + bytes((digit,)) + content[place + 1 :])
            with refused("damaged"):
                Cursor(path)


def test_a_cursor_in_a_special_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    for name in ("folder", "pipe"):
        with refused("bad_request"):
            Cursor(tmp_path / name)
    with pytest.raises(FileNotFoundError, match=r"nowhere/orders\.cursor"):
        Cursor(tmp_path / "nowhere" / "orders.cursor")
    assert listing(tmp_path) == ["folder", "pipe"]


# -- two programs -------------------------------------------------------------------------------------------

ADVANCE = """
import sys, quoth
with quoth.Cursor(sys.argv[1]) as cursor:
    cursor.advance("orders", 9)
"""


def python(code: str, *arguments: str) -> list[str]:
    """The command that runs some code."""
    return [sys.executable, "-W", "error", "-c", code, *arguments]


def test_a_closed_cursor_saves_no_later_advance(path: Path) -> None:
    """Another one has the file by then."""
    closed = Cursor(path)
    with refused("locked"):
        Cursor(path)
    closed.close()
    closed.close()
    with Cursor(path) as cursor:
        cursor.advance("orders", 9)
        cursor.save()
        closed.advance("orders", 5)
        with refused("closed"):
            closed.save()
        closed.close()
    assert kept(path) == {"orders": 9}


def test_a_forked_child_neither_saves_nor_keeps_the_lock(path: Path) -> None:
    cursor = Cursor(path)
    cursor.advance("orders", 5)
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        try:
            cursor.save()
        except BaseException as problem:
            os.write(writing, getattr(problem, "code", repr(problem)).encode())
            signal.pause()
        os._exit(0)
    try:
        os.close(writing)
        assert os.read(reading, 100) == b"closed"
        os.close(reading)
        cursor.close()
        assert kept(path) == {"orders": 5}, "while the child is there"
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


# -- crashes ------------------------------------------------------------------------------------------------


def advance(path: Path, trace: Path, fault: Fault | None = None) -> int:
    """A traced process that moves the cursor to 9; returns how it ended."""
    command = [*traced(trace, fault), *python(ADVANCE, str(path))]
    return subprocess.run(command, timeout=60, stderr=subprocess.DEVNULL).returncode


def advance_here(path: Path, pointer: int) -> None:
    with Cursor(path) as cursor:
        cursor.advance("orders", pointer)


FAULTS: list[tuple[str, dict[str, int]]] = [
    ("signal=SIGKILL", {}), ("signal=SIGKILL", {"orders": 5}), ("error=ENOSPC", {"orders": 5}),
]  # fmt: skip
"""What happens to a call, and the cursor before the save."""


@needs_strace
def test_a_save_that_dies_at_any_call_leaves_the_old_or_the_new_cursor(path: Path, tmp_path: Path) -> None:
    """Each call that changes the disk, one after the other, is the last one, or fails."""
    trace = tmp_path / "trace"
    assert advance(tmp_path / "rehearsal", trace) == 0
    rehearsed = calls_in(trace)
    changes = [call for call in rehearsed if call.name in CHANGES and str(tmp_path) in call.path]
    calls = [call for call in changes if not call.path.endswith(".lock")]
    assert [call.name for call in calls] == ["writev", "fsync", "rename", "fsync"], changes
    for (what, before), call in product(FAULTS, calls):
        path.unlink(missing_ok=True)
        if before:
            advance_here(path, before["orders"])
        nth = sum(one.name == call.name for one in rehearsed[: rehearsed.index(call) + 1])
        status = advance(path, trace, Fault(call.name, nth, what))
        assert status == (-9 if "KILL" in what else 1), (what, call)
        assert kept(path) == ({"orders": 9} if call is calls[-1] else before), (what, call)
        if "KILL" not in what:
            assert not path.with_name(path.name + ".tmp").exists()
        advance_here(path, 9)
        assert kept(path) == {"orders": 9}
        assert sorted(p.name for p in tmp_path.iterdir() if "tmp" in p.name) == []


# -- reading on ---------------------------------------------------------------------------------------------


def gaps_of(client: Client, path: Path, topic: str, *values: bytes) -> list[Gap]:
    """Read on to the end and advance; returns the reported gaps."""
    gaps: list[Gap] = []
    with Cursor(path) as cursor, client.read_many(topic, cursor=cursor, on_gap=gaps.append) as reading:
        found = []
        for one in reading:
            found.append(one.value)
            cursor.advance(one)
    assert found == list(values)
    return gaps


def test_a_reader_continues_at_its_cursor(client: Client, path: Path, topic: str) -> None:
    client.publish(topic, [b"1", b"2"])
    assert gaps_of(client, path, topic, b"1", b"2") == []
    assert gaps_of(client, path, topic) == []
    client.publish(topic, [b"3", b"4"])
    with Cursor(path) as cursor, client.tail_many(topic, cursor=cursor) as tail:
        assert [one.value for one in islice(tail, 2)] == [b"3", b"4"]
        cursor.advance(topic, client.topic(topic).last - 1)
    assert gaps_of(client, path, topic, b"4") == []


def test_records_removed_between_two_readings_are_reported_exactly(
    client: Client, path: Path, topic: str
) -> None:
    client.create_topic(topic, count_limit=2)
    first = client.publish(topic, [b"1", b"2"])
    assert gaps_of(client, path, topic, b"1", b"2") == []
    for _ in range(3):
        client.publish(topic, [b"x"] * 2)
    last = client.publish(topic, [b"3", b"4"])
    client.trim(topic, last.first)
    assert gaps_of(client, path, topic, b"3", b"4") == [Gap(topic, first.last, last.first, 6, "trimmed", 2)]


def test_a_topic_that_was_recreated_between_two_readings_is_reported(
    client: Client, path: Path, topic: str
) -> None:
    """Its pointers alone would not show it. A follower waits for a topic that is missing."""
    first = client.publish(topic, [b"1", b"2"])
    assert gaps_of(client, path, topic, b"1", b"2") == []
    client.delete_topic(topic)
    again = client.publish(topic, [b"3", b"4"])
    assert gaps_of(client, path, topic, b"3", b"4") == [Gap(topic, first.last, again.first, -1, "recreated")]
    assert gaps_of(client, path, topic) == []
    client.delete_topic(topic)
    gaps: list[Gap] = []
    with Cursor(path) as cursor, client.tail_many(topic, cursor=cursor, on_gap=gaps.append) as tail:
        assert next(tail.portions(0.05)) == []
        client.publish(topic, b"5")
        assert next(tail).value == b"5"
    assert [gap.reason for gap in gaps] == ["recreated"]


def test_a_pattern_misses_no_record_of_a_topic_that_is_created_between_two_readings(
    client: Client, path: Path, topic: str
) -> None:
    """A reading that got nothing has saved where it began."""
    client.publish(f"{topic}.a", b"old")
    with Cursor(path) as cursor, client.tail_many(f"{topic}.*", cursor=cursor):
        pass
    client.publish(f"{topic}.b", b"1")
    client.publish(f"{topic}.a", b"2")
    with Cursor(path) as cursor, client.tail_many(f"{topic}.*", cursor=cursor) as tail:
        assert sorted(one.value for one in islice(tail, 2)) == [b"1", b"2"]


def test_a_new_cursor_begins_at_the_given_place(client: Client, path: Path, topic: str) -> None:
    ack = client.publish(topic, [b"1", b"2", b"3"])
    for _ in range(2):
        with Cursor(path) as cursor, client.tail_many(topic, after=ack.first, cursor=cursor) as tail:
            assert next(tail).value == b"2"
            cursor.save()


# -- tails that keep their cursor: a record is done when the next one is asked for ---------------------------


def take(client: Client, topic: str, cursor: Cursor | Path, number: int, **how: Any) -> list[bytes]:
    """The next values, all but the last of which are done."""
    tail: Any = client.tail(topic, cursor=cursor, **how)
    with closing(tail):
        return [message.value for message in islice(tail, number)]


def test_the_record_at_which_a_loop_is_left_comes_again(client: Client, topic: str, path: Path) -> None:
    ack = client.publish(topic, [b"a", b"b", b"c", b"d"])
    assert take(client, topic, path, 2, after=0) == [b"a", b"b"]
    assert kept(path)[topic] == ack.first
    assert take(client, topic, path, 3, after=0) == [b"b", b"c", b"d"]
    assert kept(path)[topic] == ack.last - 1
    assert take(client, topic, path, 1, after=ack.last) == [b"d"]


def test_a_cursor_of_the_application_moves_and_stays_open(client: Client, topic: str, path: Path) -> None:
    ack = client.publish(topic, [b"a", b"b", b"c"])
    with Cursor(path) as cursor:
        tail = client.tail(topic, cursor=cursor, after=0)
        assert cursor.position(topic) == (0, 0, -1)
        assert next(tail).value == b"a"
        assert cursor.after(topic) == 0
        assert next(tail).value == b"b"
        position = cursor.position(topic)
        assert position is not None
        assert (position.after, position.ordinal) == (ack.first, 1)
        assert position.log == client.topic(topic).log
        tail.close()  # type: ignore[attr-defined]
        cursor.save()
    assert kept(path)[topic] == ack.first


def test_a_new_cursor_begins_now_and_logs_it(client: Client, topic: str, path: Path) -> None:
    ack = client.publish(topic, [b"old", b"older"])
    tail: Any = client.tail(topic, cursor=path)
    last = client.publish(topic, [b"a", b"b"]).last
    with closing(tail):
        assert next(tail).value == b"a"
    assert kept(path)[topic] == ack.last
    assert take(client, topic, path, 2) == [b"a", b"b"]
    assert kept(path)[topic] == last - 1


def test_a_cursor_is_saved_while_its_tail_waits(client: Client, topic: str, path: Path) -> None:
    client._timing.save_pause = 0.0
    acks = [client.publish(topic, value) for value in (b"a", b"b", b"c")]
    tail: Any = client.tail(topic, cursor=path, after=0)
    with closing(tail):
        assert [message.value for message in islice(tail, 3)] == [b"a", b"b", b"c"]
        acks.append(client.publish(topic, b"d"))
        assert next(tail).value == b"d"
        with pytest.raises(Exception, match="in use by process"):
            Cursor(path)
        assert str(acks[2].last).encode() in path.read_bytes()
    assert kept(path)[topic] == acks[2].last


def test_invalid_arguments_leave_the_cursor_unlocked(client: Client, topic: str, path: Path) -> None:
    client.publish(topic, b"a")
    with refused("bad_request"):
        client.tail(topic, after=0, since=0, cursor=path)
    for _ in range(2):
        with refused("bad_topic"):
            client.tail("no/topic\0", cursor=path)
        gc.collect()
    assert take(client, topic, path, 1, after=0) == [b"a"]
    client.close()
    with pytest.raises(QuothError) as closed:
        next(client.tail(topic, cursor=path))
    assert (closed.value.code, list(kept(path))) == ("closed", [topic]), "the error keeps no lock"


CONSUME = """
import sys, quoth
with quoth.connect(sys.argv[1]) as client:
    for message in client.tail(sys.argv[2], after=0, cursor=sys.argv[3]):
        print(message.value.decode(), flush=True)
"""


def test_a_killed_consumer_continues_at_its_saved_cursor(
    pooled: Client, broker: BrokerProcess, topic: str, path: Path
) -> None:
    for number in range(3):
        last = pooled.publish(topic, b"%d" % number).last
        command = python(CONSUME, broker.url, topic, str(path))
        with subprocess.Popen(command, stdout=subprocess.PIPE) as consumer:
            assert consumer.stdout is not None
            assert consumer.stdout.readline() == b"%d\n" % number, "neither an earlier nor a later one"
            eventually(lambda: path.exists() and b"%d" % last in path.read_bytes(), "it is saved")  # noqa: B023
            consumer.kill()
