"""Malformed requests: each gets one documented error, and no connection suffers.

The tests of `quothwire` have every malformed frame; these show that the broker refuses them as its codecs do.
"""

from __future__ import annotations

import re
import struct
from pathlib import Path
from typing import Any, NamedTuple

import msgpack

from kit.broker.brokers import BrokerProcess, StartBroker
from kit.broker.peers import FastPeer, Peers, SimplePeer, is_answered, refused
from kit.broker.requests import example
from kit.deadlines import eventually
from kit.disk.logs import made_since
from kit.forged import CORRELATION, header
from kit.machine.processes import listing, needs_proc, resident_bytes
from quothwire.batch import encode
from quothwire.errors import QuothError
from quothwire.protocol import binary_codec
from quothwire.protocol.messages import WITHOUT_TOPIC, CreateTopic, Hello, Operation, Ping, Pong, Publish


class ErrorFrames(NamedTuple):
    """An error read from its frames, since `binary_codec.decode_answer` rejects unknown operations."""

    code: str
    correlation: int


def error_of(fast: FastPeer, *frames: bytes) -> ErrorFrames:
    """Send frames behind the delimiter; returns the error that answers them, code empty for a reply."""
    fast.send_frames([b"", *frames])
    _, head, arguments, *_ = fast.receive_frames()
    magic, version, _, status, zeros, correlation = struct.unpack("<2sBBB3sQ", head)
    assert (magic, version, zeros) == (binary_codec.MAGIC, binary_codec.VERSION, bytes(3))
    return ErrorFrames(msgpack.unpackb(arguments)["code"] if status == 2 else "", correlation)


def packed(**arguments: Any) -> bytes:
    return bytes(msgpack.packb(arguments))


PROTOCOL = Path(__file__).parents[3] / "client" / "PROTOCOL.md"
WITHOUT_DELIMITER = (
    [b"ping"],
    [b"x"] * 1_000,
    [header()],
    [b"x" * 257, b"", b"ping"],
    [*[b"x"] * 9, b"", b"ping"],
)
"""The fourth has an id that is too long, the last one an id too many."""


def test_a_request_without_delimiter_is_counted_and_gets_an_error_behind_one(
    fast: FastPeer, peers: Peers, broker: BrokerProcess
) -> None:
    for count, frames in enumerate(WITHOUT_DELIMITER, 1):
        simple = peers.simple(broker)
        simple.send_frames(frames)
        empty, status, code, text = simple.receive_frames()
        assert (empty, status, code) == (b"", b"error", b"bad_request")
        assert "empty frame before the request" in text.decode()
        assert simple.ask("ping")[0] == b"ok"
        assert fast.status(limit=0).counters["malformed_requests"] == count


def test_frames_before_the_delimiter_come_back(simple: SimplePeer) -> None:
    """Routing ids may be eight frames of 256 bytes with any content."""
    for count in (0, 1, 8):
        envelope = [bytes([i + 1]) * 256 for i in range(count)]
        for word, answer in ((b"ping", [b"ok"]), (b"pong", [b"error", b"unknown_operation"])):
            simple.send_frames([*envelope, b"", word])
            expected = [*envelope, b"", *answer]
            assert simple.receive_frames()[: len(expected)] == expected


SIMPLE: dict[str, tuple[list[bytes], str]] = {
    "nothing": ([], "bad_request"),
    "many empty frames": ([b""] * 100, "unknown_operation"),
    "capitals": ([b"PING"], "unknown_operation"),
    "a long word": ([b"x" * 100_000], "unknown_operation"),
    "no UTF-8": ([b"\xff\xfe"], "unknown_operation"),
    "half a magic": ([b"\xd1" + bytes(15), b"", b"\x80"], "unknown_operation"),
    "no topic to publish to": ([b"publish"], "bad_request"),
    "too many values": ([b"publish", b"many", *[b"x"] * 10_001], "too_large"),
    "too many numbers": ([b"read", b"t", b"0", b"1", b"0", b"0"], "bad_request"),
    "no value to publish": ([b"publish", b"t"], "bad_request"),
    "something to ping": ([b"ping", b"t"], "bad_request"),
    "no such name to go on after": ([b"topics", b"a/b"], "bad_topic"),
}


def test_a_malformed_simple_request_gets_an_error(simple: SimplePeer) -> None:
    for name, (frames, code) in SIMPLE.items():
        simple.send_frames([b"", *frames])
        status, found, text = simple.receive()
        assert (status, found.decode()) == (b"error", code), name
        assert 0 < len(text.decode()) < 1_000
        assert simple.ask("ping")[0] == b"ok"
    assert "many" not in simple.topics()


HEADERS: dict[str, tuple[list[bytes], str, int]] = {
    "cut": ([header()[:15], b""], "bad_request", 0),
    "version 2, in which everything else is another": (
        [header(version=2, status=9, zeros=b"\1\2\3"), *[b"\xc1"] * 9],
        "unsupported_version",
        CORRELATION,
    ),
    "a reserved byte": ([header(zeros=b"\0\1\0"), b"", b"\x80"], "bad_request", CORRELATION),
    "a reply": ([header(status=1), b"", b"\x80"], "bad_request", CORRELATION),
    "operation 99": ([header(99, correlation=2**64 - 1), b"", b"\x80"], "unknown_operation", 2**64 - 1),
    "nothing but a header": ([header()], "bad_request", CORRELATION),
    "a thousand frames": ([header(), *[b"x"] * 1_000], "bad_request", CORRELATION),
    "a payload that is none": ([header(Operation.FETCH), b"t", b"\x80", b"x"], "bad_request", CORRELATION),
    "a topic of no use": ([header(), b"t", b"\x80"], "bad_request", CORRELATION),
    "none of its fields": ([header(Operation.STAGE), b"t", b"\x80", b""], "bad_request", CORRELATION),
    "a correlation id of 0": ([header(correlation=0), b"", b"\x80"], "", 0),
}
ARGUMENTS: dict[str, tuple[bytes, str]] = {
    "nothing": (b"", "bad_request"),
    "truncated": (packed(after=2**40)[:-1], "bad_request"),
    "an array": (msgpack.packb([1, 2]), "bad_request"),
    "100,000 levels of arrays": (b"\x91" * 100_000 + b"\x80", "bad_request"),
    "an array that claims 4 GiB": (b"\x81\xa5after\xdd\xff\xff\xff\xff", "bad_request"),
    "nested claims": (b"\x81\xa5after" + b"\xdd\x00\x00\x03\xff" * 500, "bad_request"),
    "a key twice": (b"\x82\xa5after\x01\xa5after\x02", "bad_request"),
    "an unknown key": (packed(after=1, other=2), "bad_request"),
    "text as a number": (packed(after="1"), "bad_request"),
    "2^56": (packed(after=2**56), "bad_pointer"),
    "records_max 2^32+1": (packed(records_max=2**32 + 1), "too_large"),
    "a megabyte": (packed(after=1, x=bytes(2**20)), "bad_request"),
}


@needs_proc
def test_a_malformed_fast_request_gets_an_error_with_its_correlation_id_and_takes_no_memory(
    fast: FastPeer, broker: BrokerProcess
) -> None:
    """The topic refuses arguments, and the front end does for a topic that does not exist."""
    fast.publish("t", [b"x"])
    rows = dict(HEADERS)
    for name, (arguments, code) in ARGUMENTS.items():
        for topic in (b"t", b"no such topic"):
            rows[f"{name} of {topic!r}"] = [header(Operation.FETCH), topic, arguments], code, CORRELATION

    def send_all() -> None:
        for name, (frames, code, correlation) in rows.items():
            assert error_of(fast, *frames) == (code, correlation), name
            assert isinstance(fast.call(Ping()), Pong)

    send_all()
    before = resident_bytes(broker.pid)
    for _ in range(10):
        send_all()
    assert resident_bytes(broker.pid) - before < 15 * 2**20, "two megabytes are among them, 10 times"


ABOVE_A_LIMIT = {
    "headers of a record": [
        header(Operation.PUBLISH),
        b"t",
        b"\x80",
        encode([b"x"], headers=[msgpack.packb({"n": bytes(65_530)})]),
    ],
    "a topic's name": [header(Operation.DESCRIBE), b"t" * 201, b"\x80"],
    "arguments of a request": [header(Operation.FETCH), b"t", packed(after=1, x="y" * 8_192)],
    "frames before the empty one": [],
    "`limit` of a list": [header(Operation.LIST), b"", packed(limit=1_001)],
}


def test_a_request_above_a_limit_has_the_documented_code(fast: FastPeer, simple: SimplePeer) -> None:
    for limit, frames in ABOVE_A_LIMIT.items():
        (row,) = [line for line in PROTOCOL.read_text().splitlines() if line.startswith(f"| {limit} |")]
        named = re.search(r"`(bad_\w+)`", row)
        code = named[1] if named else "too_large"
        if frames:
            assert error_of(fast, *frames) == (code, CORRELATION), limit
        else:
            simple.send_frames([*[b"x"] * 9, b"", b"ping"])
            assert simple.receive_frames()[2] == code.encode()


def test_an_error_quotes_large_values_in_part(fast: FastPeer, topic: str) -> None:
    for settings in ({"x" * 5_000: 1}, {"durability": "x" * 5_000}, {"max_age": "é" * 3_000}):
        problem = fast.request(CreateTopic(settings), topic).reply
        assert isinstance(problem, QuothError)
        assert len(problem.text) <= binary_codec.ERROR_CHARACTERS_MAX


# -- names ----------------------------------------------------------------------------------------------

BAD_NAMES = (
    b"", b".", b"..", b"a/b", b"../x", b"/etc/passwd", b"a\0b", b"a\nb", b"\x1b[31m", b"a\x7f", b"a\xc2\x85",
    "a\u2028".encode(), b"\xff\xfe", b"\xed\xa0\x80", b"\xc0\xaf", b"x" * 201, "€".encode() * 67,
)  # fmt: skip
GOOD_NAMES = (
    "CON", "-rf", "--help", " ", "a b", "~", "a~b", "..a", ".a", "...", "a.b", "%2F", "%", "a%00b", "$HOME",
    "`id`", "a;b", "a'b", 'a"b', "a\\b", "*", "?", "|", "<>", "lock", "topics", "topic.json", "T", "t",
    "é", "e\u0301", "ß", "\uff21\uff22", "😀", "\u202egnp", "\u200b", "x" * 200, "é" * 100, "😀" * 50,
    ".new~0000000000000001", ".gone~0000000000000001", "0" * 17 + ".seg", "a:b", "NUL", "\ufeff",
)  # fmt: skip


def test_a_bad_name_is_refused_by_every_operation_and_creates_no_file(
    fast: FastPeer, simple: SimplePeer, broker: BrokerProcess
) -> None:
    files = listing(broker.directory.parent)
    for name in BAD_NAMES:
        for operation in {*Operation} - WITHOUT_TOPIC:
            frames = binary_codec.encode_request(example(operation), CORRELATION)
            frames[1] = name
            assert error_of(fast, *frames) == ("bad_topic", CORRELATION), (operation, name[:20])
        with refused("bad_topic"):
            simple.publish(name, b"x")
        with refused("bad_topic"):
            simple.read(name)
    assert made_since(broker.directory.parent, files) == []


def test_every_good_name_is_a_topic_of_its_own_also_after_a_crash(
    start_broker: StartBroker, peers: Peers
) -> None:
    broker = start_broker(recovering_after=60)
    fast = peers.fast(broker)
    for name in GOOD_NAMES:
        fast.publish(name, [name.encode()])
    broker.kill()
    fast.close()
    fast = peers.fast(broker.restart())
    for name in GOOD_NAMES:
        assert fast.fetch(name).values == [name.encode()], name
    assert peers.simple(broker).topics() == sorted(GOOD_NAMES, key=str.encode)
    for path in broker.topics_directory.iterdir():
        assert path.name.isascii(), path
        assert len(path.name) <= 255
    assert {Path(name).parts[0] for name in listing(broker.directory)} == {"lock", "topics"}


# -- frames ---------------------------------------------------------------------------------------------


@needs_proc
def test_a_frame_that_is_too_large_ends_its_connection_only_and_takes_no_memory(
    fast: FastPeer, peers: Peers, broker: BrokerProcess, topic: str
) -> None:
    """The client connects again."""
    huge = bytes(fast.call(Hello()).limits["frame_bytes_max"] + 1)
    fast.publish(topic, [b"before"])
    before = resident_bytes(broker.pid)
    for _ in range(4):
        bad = peers.fast(broker)
        bad.send(Publish(), topic, huge)
        assert bad.is_silent(0.05)
        fast.publish(topic, [b"x"])
    assert resident_bytes(broker.pid) - before < 8 * 2**20
    eventually(lambda: is_answered(bad), "the client connects again")
    assert len(fast.read_all(topic)) == 5
