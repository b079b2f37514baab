"""`quoth pub` publishes values that are typed and lines of a pipe."""

from __future__ import annotations

import fcntl
import os
import signal
import struct
import subprocess
import termios

import pytest

from kit.broker.brokers import StartBroker
from kit.deadlines import eventually
from kit.machine.commands import Command, Running


def test_value_is_published_and_its_pointer_printed(quoth: Command, topic: str) -> None:
    told = quoth("pub", topic, "hello, world", "--format", "json")
    assert told.status == 0, told
    (ack,) = told.objects
    assert (ack["topic"], ack["count"], ack["durability"]) == (topic, 1, "written")
    assert ack["first"] == ack["last"]
    assert quoth("get", topic, str(ack["first"]), "--format", "raw").out == b"hello, world\n"


def test_every_format_prints_the_pointer(quoth: Command, topic: str) -> None:
    text = quoth("pub", topic, "one").out.decode().rstrip("\n").split("\t")
    assert text[2] == "1 record, written"
    raw = quoth("pub", topic, "two", "--format", "raw")
    assert int(raw.out) > int(text[0])


def test_record_gets_key_and_headers(quoth: Command, topic: str) -> None:
    told = quoth("pub", topic, "v", "--key", "k", "--header", "a=1", "--header", "b=x=y", "--header", "c=")
    assert told.status == 0, told
    (found,) = quoth("read", topic, "--format", "json").objects
    assert (found["key"], found["headers"]) == ("k", {"a": "1", "b": "x=y", "c": ""})


def test_arguments_with_any_bytes_are_published(quoth: Command, topic: str) -> None:
    value = os.fsdecode(b"\xff\xfe")
    assert quoth("pub", topic, value, "--key", value).status == 0
    (found,) = quoth("read", topic, "--format", "json").objects
    assert (found["value_base64"], found["key_base64"]) == ("//4=", "//4=")


def test_value_that_begins_with_a_dash_is_published(quoth: Command, topic: str) -> None:
    assert quoth("pub", topic, "--", "-5").status == 0
    assert quoth("read", topic, "--format", "raw").out == b"-5\n"


LINES = {
    "one line": b"one\n",
    "no newline at the end": b"one\ntwo",
    "carriage returns stay": b"one\r\ntwo\r\n",
    "empty lines are records": b"\n\na\n\n",
    "binary": bytes(range(256)) + b"\n\xff\xfe\n",
    "a long line": b"x" * 3_000_000 + b"\ny\n",
}


@pytest.mark.parametrize("content", LINES.values(), ids=LINES)
def test_lines_of_stdin(quoth: Command, topic: str, content: bytes) -> None:
    told = quoth("pub", topic, "--format", "json", stdin=content)
    assert told.status == 0, told
    whole = content if content.endswith(b"\n") else content + b"\n"
    assert told.objects[0]["count"] == whole.count(b"\n")
    assert quoth("read", topic, "--format", "raw").out == whole


def test_many_lines_with_a_key_keep_their_order(quoth: Command, topic: str) -> None:
    content = b"".join(b"%d\n" % number for number in range(25_000))
    told = quoth("pub", topic, "--key", "k", "--header", "h=1", "--format", "json", stdin=content)
    (ack,) = told.objects
    assert ack["count"] == 25_000
    assert ack["last"] - ack["first"] >= 24_999
    assert quoth("read", topic, "--format", "raw").out == content
    assert quoth("get", topic, str(ack["last"]), "--format", "json").objects[0]["value"] == "24999"


def test_empty_stdin_publishes_nothing(quoth: Command, topic: str) -> None:
    told = quoth("pub", topic)
    assert (told.status, told.out) == (0, b"")
    assert "nothing was published" in told.err
    assert quoth("topic", "info", topic).status == 3, "a topic was made"


def test_line_is_published_while_the_pipe_is_open(quoth: Command, topic: str) -> None:
    pub = quoth.start("pub", topic, stdin=subprocess.PIPE)
    tail = quoth.start("tail", topic, "--after", "0", "--format", "raw")
    for line in ("first", "second"):
        pub.write(f"{line}\n".encode())
        assert tail.line() == line
    assert pub.end().status == 0
    tail.end(signal.SIGINT)


def test_interrupted_pipe_publishes_its_lines_and_reports_their_number(quoth: Command, topic: str) -> None:
    pub = quoth.start("pub", topic, stdin=subprocess.PIPE)
    tail = quoth.start("tail", topic, "--after", "0", "--limit", "2")
    pub.write(b"one\ntwo\nthr")
    assert tail.end().status == 0
    ended = pub.end(signal.SIGINT)
    assert (ended.status, ended.out) == (130, b"")
    assert "published 2 records of stdin" in ended.err


def test_interrupt_ends_it_at_once_while_the_broker_is_away(
    start_broker: StartBroker, running: list[Running], topic: str
) -> None:
    broker = start_broker()
    quoth = Command(broker.url, running)
    pub = quoth.start("pub", topic, stdin=subprocess.PIPE)
    tail = quoth.start("tail", topic, "--after", "0", "--limit", "1")
    pipe = pub.process.stdin
    assert pipe is not None
    pipe.write(b"one\n")
    pipe.flush()
    assert tail.end().status == 0
    broker.kill()
    pipe.write(b"two\n")
    pipe.flush()
    eventually(lambda: unread(pipe.fileno()) == 0, "it has read that")
    ended = pub.end(signal.SIGINT)
    assert (ended.status, ended.out) == (130, b"")
    assert ended.err == "quoth: published 1 record of stdin\n"


def unread(pipe: int) -> int:
    """Bytes that wait in a pipe."""
    (count,) = struct.unpack("i", fcntl.ioctl(pipe, termios.FIONREAD, b"\0" * 4))
    return int(count)


def test_level_of_durability_is_reached(quoth: Command, topic: str) -> None:
    (ack,) = quoth("pub", topic, "v", "--durability", "synced", "--format", "json").objects
    assert ack["durability"] == "synced"
    (ack,) = quoth("pub", topic, "--durability", "synced", "--format", "json", stdin=b"a\nb\n").objects
    assert (ack["durability"], ack["count"]) == ("synced", 2)


def test_line_too_long_for_a_record_is_refused(quoth: Command, topic: str) -> None:
    told = quoth("pub", topic, stdin=b"fine\n" + b"x" * (17 * 2**20) + b"\n")
    assert told.status == 1
    assert "published 1 record of stdin" in told.err
    assert "too_large: line 2 has more than" in told.err


def test_broker_that_goes_away_fails_it_with_the_number_of_records(
    start_broker: StartBroker, running: list[Running], topic: str
) -> None:
    broker = start_broker()
    quoth = Command(broker.url, running)
    assert quoth("topic", "create", topic).status == 0  # so that nothing is waited for but the first answer
    pub = quoth.start("pub", topic, "--timeout", "4", stdin=subprocess.PIPE)
    tail = quoth.start("tail", topic, "--after", "0", "--limit", "1")
    pub.write(b"one\n")
    assert tail.end().status == 0
    broker.kill()
    pub.write(b"two\nthree\n")
    ended = pub.end()
    assert (ended.status, ended.out) == (4, b"")
    said = ended.err.splitlines()
    assert said[0] == "quoth: published 1 record of stdin"
    assert "2 records" in said[1]


def test_pipe_and_tail_outlive_a_restart_of_the_broker(
    start_broker: StartBroker, running: list[Running], topic: str
) -> None:
    broker = start_broker()
    quoth = Command(broker.url, running)
    pub = quoth.start("pub", topic, stdin=subprocess.PIPE)
    tail = quoth.start("tail", topic, "--after", "0", "--limit", "2", "--format", "raw")
    pub.write(b"one\n")
    assert tail.line() == "one"
    broker.kill()
    pub.write(b"two\n")
    broker.restart()
    assert tail.line() == "two"
    assert pub.end().status == 0
    assert tail.end().status == 0
    assert quoth("read", topic, "--format", "raw").out == b"one\ntwo\n"
