"""`quoth pub`: values that are typed, whole files, lines of a pipe, also NUL-delimited and as JSON."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kit.broker.brokers import StartBroker
from kit.deadlines import DEADLINE_S, eventually
from kit.machine.commands import Command, Running
from kit.machine.processes import peak_of, unread
from quoth import Client, Message
from quothcli.cli.exit_status import Refused
from quothcli.records import record_parser
from quothcli.records.record_parser import JSON_LINE_BYTES_MAX, LINE_BYTES_MAX, portions
from quothwire.errors import RequestError
from quothwire.text.record_json import json_object, record_object

Stored = list[tuple[bytes, bytes | None, dict[str, bytes]]]
Kept = Callable[[str], Stored]


@pytest.fixture
def kept(client: Client) -> Kept:
    """Reads the records of a topic, without pointers."""
    return lambda topic: [(one.value, one.key, dict(one.headers)) for one in client.read(topic, limit=10**6)]


# -- values -------------------------------------------------------------------------------------------------


def test_every_format_prints_the_pointers(quoth: Command, topic: str, kept: Kept) -> None:
    result = quoth("pub", topic, "hello, world", "--format", "json")
    assert result.status == 0, result
    (ack,) = result.objects
    assert (ack["topic"], ack["count"], ack["durability"]) == (topic, 1, "written")
    assert ack["first"] == ack["last"]
    text = quoth("pub", topic, "two").lines[0].split("\t")
    assert text[2] == "1 record, written"
    assert int(quoth("pub", topic, "three", "--format", "raw").out) > int(text[0])
    (ack,) = quoth("pub", topic, "4", "", "6", "--key", "k", "--format", "json").objects
    assert (ack["count"], ack["last"] - ack["first"]) == (3, 2)
    assert kept(topic)[3:] == [(value, b"k", {}) for value in (b"4", b"", b"6")]


ARGUMENTS: dict[str, tuple[list[str], bytes | None, bytes, dict[str, bytes]]] = {
    "key and headers": (
        ["v", "--key", "k", "--header", "a=1", "--header", "b=x=y", "--header", "c="],
        *(b"k", b"v", {"a": b"1", "b": b"x=y", "c": b""}),
    ),
    "any bytes": ([os.fsdecode(b"\xff\xfe"), "--key", os.fsdecode(b"\xff")], b"\xff", b"\xff\xfe", {}),
    "a dash": (["--", "-5"], None, b"-5", {}),
    "a key before the separator": (["a => b", "--key-separator", " => "], b"a", b"b", {}),
}


def test_values_keys_and_headers_are_published_as_they_are_typed(
    quoth: Command, topic: str, kept: Kept
) -> None:
    for case, (typed, key, value, headers) in ARGUMENTS.items():
        assert quoth("pub", topic, *typed).status == 0
        assert kept(topic)[-1] == (value, key, headers), case


def test_level_of_durability_is_reached(quoth: Command, topic: str) -> None:
    for words, stdin, count in ((["v"], b"", 1), ([], b"a\nb\n", 2)):
        result = quoth("pub", topic, *words, "--durability", "synced", "--format", "json", stdin=stdin)
        assert (result.objects[0]["durability"], result.objects[0]["count"]) == ("synced", count)


# -- lines --------------------------------------------------------------------------------------------------

LINES = {
    "one line": b"one\n",
    "no newline at the end": b"one\ntwo",
    "carriage returns stay": b"one\r\ntwo\r\n",
    "empty lines are records": b"\n\na\n\n",
    "binary": bytes(range(256)) + b"\n\xff\xfe\n",
    "a long line": b"x" * 3_000_000 + b"\ny\n",
    "more than a batch": b"".join(b"%d\n" % number for number in range(25_000)),
}


def test_lines_of_stdin_become_records_in_their_order(quoth: Command, topic: str) -> None:
    for number, (case, content) in enumerate(LINES.items()):
        name = f"{topic}-{number}"
        result = quoth("pub", name, "--key", "k", "--format", "json", stdin=content)
        whole = content if content.endswith(b"\n") else content + b"\n"
        assert result.objects[0]["count"] == whole.count(b"\n"), case
        assert quoth("read", name, "--format", "raw").out == whole, case


@pytest.mark.parametrize("content", [b"a\nb\0\0c", b"a\nb\0\0c\0"])
def test_records_that_end_with_nul_are_split(quoth: Command, topic: str, kept: Kept, content: bytes) -> None:
    assert quoth("pub", topic, "--null", stdin=content).status == 0
    assert [value for value, _, _ in kept(topic)] == [b"a\nb", b"", b"c"]


def test_key_before_the_separator_is_split_off(quoth: Command, topic: str, kept: Kept) -> None:
    lines = b"k:v\nk:v:w\n:v\nk:\nnone\n"
    assert quoth("pub", topic, "-K", ":", "--key", "other", stdin=lines).status == 0
    expected = [(b"v", b"k"), (b"v:w", b"k"), (b"v", b""), (b"", b"k"), (b"none", b"other")]
    assert [(value, key) for value, key, _ in kept(topic)] == expected


def test_empty_stdin_publishes_nothing(quoth: Command, topic: str) -> None:
    result = quoth("pub", topic)
    assert (result.status, result.out) == (0, b"")
    assert "nothing was published" in result.err
    assert quoth("topic", "info", topic).status == 3, "a topic was made"


PATIENT = f"""\
from functools import partial; from quoth.core import calls
calls.Timing = partial(calls.Timing, interrupted={DEADLINE_S})"""
"""A prelude: a busy machine may need longer for an answer than an interrupted program waits for it."""


def test_lines_are_published_while_the_pipe_is_open_and_counted_when_it_is_interrupted(
    quoth: Command, topic: str
) -> None:
    pub = quoth.prepared(PATIENT).start("pub", topic, stdin=subprocess.PIPE)
    tail = quoth.start("tail", topic, "--after", "0", "--format", "raw")
    for line in ("first", "second"):
        pub.write(f"{line}\n".encode())
        assert tail.line() == line
    pub.write(b"thr")
    ended = pub.end(signal.SIGINT)
    assert (ended.status, ended.out, ended.err) == (130, b"", "quoth: published 2 records of stdin\n")


def test_pipe_outlives_a_restart_of_the_broker_and_an_interrupt_ends_it_at_once_while_that_is_away(
    start_broker: StartBroker, running: list[Running], topic: str
) -> None:
    broker = start_broker()
    quoth = Command(broker.url, running)
    pub = quoth.start("pub", topic, stdin=subprocess.PIPE)
    tail = quoth.start("tail", topic, "--after", "0", "--format", "raw")
    pub.write(b"one\n")
    assert tail.line() == "one"
    broker.kill()
    pub.write(b"two\n")
    broker.restart()
    assert tail.line() == "two"
    assert broker.terminate() == 0, "it has sent the acknowledgement, too"
    pub.write(b"three\n")
    pipe = pub.process.stdin
    assert pipe is not None
    eventually(lambda: unread(pipe.fileno()) == 0, "it has read that")
    ended = pub.end(signal.SIGINT)
    assert (ended.status, ended.out, ended.err) == (130, b"", "quoth: published 2 records of stdin\n")


def test_broker_that_goes_away_fails_it_with_the_number_of_records(
    start_broker: StartBroker, running: list[Running], topic: str
) -> None:
    broker = start_broker()
    quoth = Command(broker.url, running)
    assert quoth("topic", "create", topic).status == 0  # so that nothing is waited for but the first answer
    pub = quoth.start("pub", topic, "--timeout", "2", stdin=subprocess.PIPE)
    tail = quoth.start("tail", topic, "--after", "0", "--limit", "1")
    pub.write(b"one\n")
    assert tail.end().status == 0
    assert broker.terminate() == 0, "it has sent the acknowledgement, too"
    pub.write(b"two\nthree\n")
    ended = pub.end()
    assert (ended.status, ended.out) == (4, b"")
    said = ended.err.splitlines()
    assert said[0] == "quoth: published 1 record of stdin"
    assert "2 records" in said[1]


# -- files --------------------------------------------------------------------------------------------------


def test_file_or_pipe_becomes_a_record(quoth: Command, topic: str, kept: Kept, tmp_path: Path) -> None:
    contents = {"a.bin": bytes(range(256)), "b.txt": b"two\nlines\n", "empty": b"", "large": b"x" * 9_000_000}
    options = []
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
        options += ["--file", str(tmp_path / name)]
    (ack,) = quoth("pub", topic, *options, "--header", "source=here", "--format", "json").objects
    assert ack["count"] == len(contents)
    assert kept(topic) == [(content, None, {"source": b"here"}) for content in contents.values()]
    path = tmp_path / os.fsdecode(b"n\xe4me")
    path.write_bytes(b"x")
    assert quoth("pub", topic, "--file", str(path), "--file-names").status == 0
    assert kept(topic)[-1] == (b"x", None, {"filename": b"n\xe4me"})
    assert quoth("pub", topic, "--file", "/dev/stdin", stdin=b"a\nb\n").status == 0
    assert kept(topic)[-1] == (b"a\nb\n", None, {})


def test_unusable_file_prevents_all_others(quoth: Command, topic: str, tmp_path: Path) -> None:
    fine, large, folder = (tmp_path / name for name in ("fine", "large", "folder"))
    fine.write_bytes(b"fine")
    large.touch()
    os.truncate(large, LINE_BYTES_MAX + 1)
    folder.mkdir()
    for other, status in ((large, 1), (tmp_path / "missing", 3), (folder, 1)):
        happened, _ = quoth("pub", topic, "--file", str(fine), "--file", str(other)).refused(status)
        assert str(other) in happened
        assert quoth("topic", "info", topic).status == 3, "a topic was made"
    result = quoth("pub", topic, "--file", "/dev/stdin", stdin=b"x" * (LINE_BYTES_MAX + 1))
    assert result.status == 1
    assert "too_large: /dev/stdin has too much" in result.err


# -- objects ------------------------------------------------------------------------------------------------


def random_bytes(rng: random.Random) -> bytes:
    """Choose text, binary, nothing, or characters that JSON escapes."""
    kinds = (b"", b"plain", 'ä"\\\n\t\0\u2028'.encode(), rng.randbytes(rng.randrange(40)), b"\x7f", b"null")
    return rng.choice(kinds)


def test_read_and_pub_copy_a_topic_exactly(
    quoth: Command, client: Client, topic: str, kept: Kept, rng: random.Random
) -> None:
    with client.producer(topic) as producer:
        for number in range(1_000):
            key = random_bytes(rng) if rng.random() < 0.5 else None
            headers = {f"h{place}": random_bytes(rng) for place in range(rng.randrange(3))}
            producer.send(b"%d " % number + random_bytes(rng), key=key, headers=headers)
    read = quoth("read", topic, "--format", "json")
    (ack,) = quoth("pub", f"{topic}-copy", "--json", "--format", "json", stdin=read.out).objects
    assert ack["count"] == 1_000
    assert kept(f"{topic}-copy") == kept(topic)


def test_largest_record_fits_into_the_longest_line() -> None:
    value = b"\0" * (LINE_BYTES_MAX - 100)
    line = json.dumps(record_object(Message("t", 1, value, None, {}))).encode()
    assert 5 * len(value) < len(line) < JSON_LINE_BYTES_MAX
    assert json_object(line) == (value, None, {})


def test_key_and_headers_of_a_record_win_over_the_options(quoth: Command, topic: str, kept: Kept) -> None:
    lines = b'{"value": "a", "key": "own", "headers": {"h": "own"}}\n{"value": "b"}\n'
    options = ("--json", "--key", "k", "--header", "h=1", "--header", "i=2")
    assert quoth("pub", topic, *options, stdin=lines).status == 0
    assert kept(topic) == [(b"a", b"own", {"h": b"own", "i": b"2"}), (b"b", b"k", {"h": b"1", "i": b"2"})]


BAD = {
    "no JSON": "{",
    "no object": "[1]",
    "no value": '{"key": "k"}',
    "a value of null": '{"value": null}',
    "a number for a value": '{"value": 7}',
    "no base64": '{"value": null, "value_base64": "%%%"}',
    "base64 of another kind": '{"value_base64": 7}',
    "two values": '{"value": "a", "value_base64": "YQ=="}',
    "another member": '{"value": "a", "heders": {}}',
    "headers that are none": '{"value": "a", "headers": []}',
    "a header without a value": '{"value": "a", "headers": {"h": null}}',
    "half a pair of surrogates": '{"value": "\\ud800"}',
    "too deep": "[" * 100_000,
}


def test_line_that_is_no_record_is_refused_with_its_number() -> None:
    for case, line in BAD.items():
        found = record_parser.parsed([b'{"value": "fine"}', line.encode()], json_object, 10)
        assert next(found) == (b"fine", None, {})
        with pytest.raises(Refused, match="line 12 ") as refused:
            next(found)
        assert (refused.value.code, refused.value.status) == ("bad_line", 2), case


def test_lines_before_a_refused_one_are_published(quoth: Command, topic: str, kept: Kept) -> None:
    for options, lines, status, said in (
        (["--json"], b'{"value": "a"}\n{"valeu": "b"}\n{"value": "c"}\n', 2, "bad_line: line 2 is no record: "
         "there is no member 'valeu', did you mean value?"),
        ([], b"a\n" + b"x" * (17 * 2**20) + b"\n", 1, "too_large: line 2 has more than"),
    ):  # fmt: skip
        result = quoth("pub", topic, *options, stdin=lines)
        assert (result.status, result.out) == (status, b"")
        happened, reason = result.err.splitlines()[:2]
        assert happened == "quoth: published 1 record of stdin"
        assert said in reason
    assert [value for value, _, _ in kept(topic)] == [b"a", b"a"]


# -- lines of a stream ----------------------------------------------------------------------------


class Trickle:
    """A stream that returns at most so many bytes at a time."""

    def __init__(self, content: bytes, step: int) -> None:
        self._content = content
        self._step = step
        self.asked = 0

    def read1(self, size: int, /) -> bytes:
        """Return the next bytes."""
        self.asked += 1
        step = min(size, self._step)
        taken, self._content = self._content[:step], self._content[step:]
        return taken


PARTS = st.sampled_from([b"", b"a", b"\n", b"bc\r", b"\n\n", b"\xff", b"\x0b\x1c\x85", b"\xe2\x80\xa8"])


@given(st.lists(PARTS), st.integers(1, 9))
def test_any_content_is_split_at_its_newlines(parts: list[bytes], step: int) -> None:
    content = b"".join(parts)
    *lines, rest = content.split(b"\n")
    found = list(portions(Trickle(content, step)))
    assert all(found), "an empty portion"
    assert [line for part in found for line in part] == [*lines, *([rest] if rest else [])]


def test_lines_are_handed_on_before_more_is_read() -> None:
    stream = Trickle(b"one\ntwo\nthr", 4)
    found = portions(stream)
    assert next(found) == [b"one"]
    assert stream.asked == 1


LONG = b"x" * 11


def test_line_that_no_record_can_hold_is_refused_with_its_number() -> None:
    for content, number in (
        (LONG, 1),
        (b"a\nb\n" + LONG, 3),
        (b"a\n" + LONG + b"\nb\n", 2),
        (LONG + b"\n", 1),
    ):
        for step in (1, 5, 100):
            with pytest.raises(RequestError, match=f"line {number} ") as caught:
                list(portions(Trickle(content, step), longest=10, block_bytes=8))
            assert caught.value.code == "too_large"
    content = b"x" * 10 + b"\n" + b"y" * 10
    assert list(portions(Trickle(content, 3), longest=10))[-1] == [b"y" * 10]


def test_line_that_comes_byte_by_byte_is_held_once() -> None:
    assert peak_of(lambda: list(portions(Trickle(b"x" * 50_000, 1)))) < 5 * 50_000


def test_terminal_that_is_gone_takes_its_progress_bar_with_it_and_nothing_else(
    quoth: Command, topic: str, kept: Kept
) -> None:
    ours, theirs = os.openpty()
    environment = {"TERM": "xterm"}
    publishing = quoth.start("pub", topic, stdin=subprocess.PIPE, stderr=theirs, environment=environment)
    os.close(theirs)
    shown = b""
    while b"publishing" not in shown:
        shown += os.read(ours, 65_536)
    os.close(ours)
    publishing.write(b"1\n2\n")
    told = publishing.end()
    assert (told.status, told.lines[0].split("\t")[2]) == (0, "2 records, written")
    assert [value for value, _, _ in kept(topic)] == [b"1", b"2"]


def test_endless_line_is_refused_early() -> None:
    """/dev/zero has no newline: memory must not grow until the machine has none left."""
    stream = Trickle(b"\0" * 1_000_000, 100)
    with pytest.raises(RequestError):
        list(portions(stream, longest=1_000))
    assert stream.asked == 11
