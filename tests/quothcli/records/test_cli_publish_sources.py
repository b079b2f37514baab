"""`quoth pub` of several values, whole files, NUL-delimited and JSON lines, with keys split off."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path
from typing import Any

import pytest

import quoth as client
from kit.broker.brokers import BrokerProcess
from kit.machine.commands import Command
from quothcli.cli.exit_status import Refused
from quothcli.printing.output import message_object
from quothcli.records import record_parser
from quothcli.records.lines import LINE_BYTES_MAX
from quothcli.records.record_parser import json_object

Kept = list[tuple[bytes, bytes | None, dict[str, bytes]]]


@pytest.fixture
def kept(broker: BrokerProcess) -> Any:
    """Reads the records of a topic, without pointers."""

    def read(topic: str) -> Kept:
        with client.connect(broker.url) as connected:
            return [(one.value, one.key, dict(one.headers)) for one in connected.read(topic, limit=10**6)]

    return read


def test_several_values_become_one_batch(quoth: Command, topic: str, kept: Any) -> None:
    (ack,) = quoth("pub", topic, "one", "", "three", "--key", "k", "--format", "json").objects
    assert (ack["count"], ack["last"] - ack["first"]) == (3, 2)
    assert kept(topic) == [(value, b"k", {}) for value in (b"one", b"", b"three")]


def test_file_becomes_a_record(quoth: Command, topic: str, kept: Any, tmp_path: Path) -> None:
    contents = {"a.bin": bytes(range(256)), "b.txt": b"two\nlines\n", "empty": b"", "large": b"x" * 9_000_000}
    options = []
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
        options += ["--file", str(tmp_path / name)]
    (ack,) = quoth("pub", topic, *options, "--header", "source=here", "--format", "json").objects
    assert ack["count"] == len(contents)
    assert kept(topic) == [(content, None, {"source": b"here"}) for content in contents.values()]


def test_name_of_a_file_becomes_a_header(quoth: Command, topic: str, kept: Any, tmp_path: Path) -> None:
    path = tmp_path / os.fsdecode(b"n\xe4me")
    path.write_bytes(b"x")
    assert quoth("pub", topic, "--file", str(path), "--file-names").status == 0
    assert kept(topic) == [(b"x", None, {"filename": b"n\xe4me"})]


def test_pipe_is_read_as_a_file(quoth: Command, topic: str, kept: Any) -> None:
    assert quoth("pub", topic, "--file", "/dev/stdin", stdin=b"a\nb\n").status == 0
    assert kept(topic) == [(b"a\nb\n", None, {})]


@pytest.mark.parametrize("wrong", ["too large", "missing", "a folder"])
def test_unusable_file_prevents_all_others(quoth: Command, topic: str, tmp_path: Path, wrong: str) -> None:
    fine, other = tmp_path / "fine", tmp_path / "other"
    fine.write_bytes(b"fine")
    if wrong == "too large":
        other.touch()
        os.truncate(other, LINE_BYTES_MAX + 1)
    elif wrong == "a folder":
        other.mkdir()
    told = quoth("pub", topic, "--file", str(fine), "--file", str(other))
    assert (told.status, told.out) == (3 if wrong == "missing" else 1, b"")
    assert str(other) in told.err
    assert len(told.err.splitlines()) == 2
    assert quoth("topic", "info", topic).status == 3, "a topic was made"


def test_pipe_with_too_much_is_refused(quoth: Command, topic: str) -> None:
    told = quoth("pub", topic, "--file", "/dev/stdin", stdin=b"x" * (LINE_BYTES_MAX + 1))
    assert told.status == 1
    assert "too_large: /dev/stdin has too much" in told.err


@pytest.mark.parametrize("content", [b"a\nb\0\0c", b"a\nb\0\0c\0"])
def test_records_that_end_with_nul_are_split(quoth: Command, topic: str, kept: Any, content: bytes) -> None:
    assert quoth("pub", topic, "--null", stdin=content).status == 0
    assert [value for value, _, _ in kept(topic)] == [b"a\nb", b"", b"c"]


def test_key_before_the_separator_is_split_off(quoth: Command, topic: str, kept: Any) -> None:
    lines = b"k:v\nk:v:w\n:v\nk:\nnone\n"
    assert quoth("pub", topic, "-K", ":", "--key", "other", stdin=lines).status == 0
    expected = [(b"v", b"k"), (b"v:w", b"k"), (b"v", b""), (b"", b"k"), (b"none", b"other")]
    assert [(value, key) for value, key, _ in kept(topic)] == expected
    assert quoth("pub", topic, "a => b", "--key-separator", " => ").status == 0
    assert kept(topic)[-1] == (b"b", b"a", {})


def random_bytes(rng: random.Random) -> bytes:
    """Choose text, binary, nothing, or characters that JSON escapes."""
    kinds = (b"", b"plain", 'ä"\\\n\t\0\u2028'.encode(), rng.randbytes(rng.randrange(40)), b"\x7f", b"null")
    return rng.choice(kinds)


def test_read_and_pub_copy_a_topic_exactly(
    quoth: Command, broker: BrokerProcess, topic: str, kept: Any, rng: random.Random
) -> None:
    with client.connect(broker.url) as connected, connected.producer(topic) as producer:
        for number in range(2_000):
            key = random_bytes(rng) if rng.random() < 0.5 else None
            headers = {f"h{place}": random_bytes(rng) for place in range(rng.randrange(3))}
            producer.send(b"%d " % number + random_bytes(rng), key=key, headers=headers)
    read = quoth("read", topic, "--format", "json")
    (ack,) = quoth("pub", f"{topic}-copy", "--json", "--format", "json", stdin=read.out).objects
    assert ack["count"] == 2_000
    assert kept(f"{topic}-copy") == kept(topic)


def test_largest_record_is_copied(quoth: Command, broker: BrokerProcess, topic: str, kept: Any) -> None:
    value = b"\0" * (LINE_BYTES_MAX - 100)
    with client.connect(broker.url) as connected:
        connected.publish(topic, value)
    read = quoth("read", topic, "--format", "json")
    assert len(read.out) > 5 * len(value)
    assert quoth("pub", f"{topic}-copy", "--json", stdin=read.out).status == 0
    assert kept(f"{topic}-copy") == kept(topic)


def test_key_and_headers_of_a_record_win_over_the_options(quoth: Command, topic: str, kept: Any) -> None:
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


@pytest.mark.parametrize("line", BAD.values(), ids=BAD)
def test_line_that_is_no_record_is_refused_with_its_number(line: str) -> None:
    lines = [b'{"value": "fine"}', line.encode()]
    found = record_parser.parsed(lines, json_object, 10)
    assert next(found) == (b"fine", None, {})
    with pytest.raises(Refused) as refused:
        next(found)
    assert (refused.value.code, refused.value.status) == ("bad_line", 2)
    assert "line 12 " in refused.value.text


def test_lines_before_a_bad_one_are_published(quoth: Command, topic: str, kept: Any) -> None:
    told = quoth("pub", topic, "--json", stdin=b'{"value": "a"}\n{"valeu": "b"}\n{"value": "c"}\n')
    assert (told.status, told.out) == (2, b"")
    said = told.err.splitlines()
    assert said[0] == "quoth: published 1 record of stdin"
    assert "bad_line: line 2 is no record: there is no member 'valeu', did you mean value?" in said[1]
    assert [value for value, _, _ in kept(topic)] == [b"a"]


def test_printed_record_parses_to_the_same(rng: random.Random) -> None:
    for _ in range(500):
        headers = {f"h{place}": random_bytes(rng) for place in range(rng.randrange(3))}
        key = random_bytes(rng) if rng.random() < 0.5 else None
        message = client.Message("t", 1, random_bytes(rng), key, headers)
        line = json.dumps(message_object(message)).encode()
        assert json_object(line) == (message.value, message.key, headers)
