"""Malformed requests: each gets one documented error, and no connection suffers."""

from __future__ import annotations

from pathlib import Path

import msgpack
import pytest

from kit.broker.brokers import BrokerProcess, StartBroker
from kit.broker.frames import header, packed, refusal_of
from kit.broker.peers import FastPeer, Peers, SimplePeer, refused
from kit.broker.requests import example
from kit.deadlines import eventually
from kit.machine.processes import listing, needs_proc, resident_bytes
from quothwire.errors import QuothError
from quothwire.protocol import binary_codec
from quothwire.protocol.messages import CreateTopic, Operation, Ping, Pong, Publish
from quothwire.protocol.operations import REQUESTS, WITHOUT_TOPIC


def still_works(fast: FastPeer) -> None:
    """Check that the connection answers."""
    assert isinstance(fast.call(Ping()), Pong)


# -- the envelope ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "frames",
    [
        [b"ping"],
        [b"publish", b"t", b"x"],
        [b"x"] * 1_000,
        [header()],
        [b"x" * 257, b"", b"ping"],
        [*[b"x"] * 9, b"", b"ping"],
    ],
    ids=["one part", "three parts", "a thousand parts", "fast", "a huge id", "nine ids"],
)
def test_request_without_delimiter_is_counted_and_gets_an_error_behind_one(
    fast: FastPeer, peers: Peers, broker: BrokerProcess, frames: list[bytes]
) -> None:
    before = fast.status(limit=0).counters.get("malformed_requests", 0)
    simple = peers.simple(broker)
    simple.send_frames(frames)
    empty, status, code, text = simple.receive_frames()
    assert (empty, status, code) == (b"", b"error", b"bad_request")
    assert "empty frame before the request" in text.decode()
    simple.send("ping")
    assert simple.receive()[0] == b"ok"
    assert fast.status(limit=0).counters["malformed_requests"] == before + 1


@pytest.mark.parametrize("count", [0, 1, 8])
def test_frames_before_the_delimiter_come_back(simple: SimplePeer, count: int) -> None:
    """Routing ids may be eight frames of 256 bytes with any content."""
    envelope = [bytes([i + 1]) * 256 for i in range(count)]
    simple.send_frames([*envelope, b"", b"ping"])
    frames = simple.receive_frames()
    assert frames[: count + 2] == [*envelope, b"", b"ok"]
    simple.send_frames([*envelope, b"", b"pong"])
    frames = simple.receive_frames()
    assert frames[: count + 3] == [*envelope, b"", b"error", b"unknown_operation"]


# -- simple ---------------------------------------------------------------------------------------------

SIMPLE_GARBAGE: dict[str, tuple[list[bytes], str]] = {
    "nothing": ([], "bad_request"),
    "an empty frame": ([b""], "unknown_operation"),
    "many empty frames": ([b""] * 100, "unknown_operation"),
    "capitals": ([b"PING"], "unknown_operation"),
    "a NUL": ([b"ping\0"], "unknown_operation"),
    "a long word": ([b"x" * 100_000], "unknown_operation"),
    "no UTF-8": ([b"\xff\xfe"], "unknown_operation"),
    "a thousand parts": ([b"x"] * 1_000, "unknown_operation"),
    "no topic to publish to": ([b"publish"], "bad_request"),
    "no topic to read": ([b"read"], "bad_request"),
    "too many values": ([b"publish", b"many", *[b"x"] * 10_001], "too_large"),
    "too many numbers": ([b"read", b"t", b"0", b"1", b"0", b"0"], "bad_request"),
    "something to ping": ([b"ping", b"t"], "bad_request"),
    "two names to go on after": ([b"topics", b"a", b"b"], "bad_request"),
    "no such name to go on after": ([b"topics", b"a/b"], "bad_topic"),
}


@pytest.mark.parametrize("name", SIMPLE_GARBAGE)
def test_malformed_simple_request_gets_an_error(simple: SimplePeer, name: str) -> None:
    frames, code = SIMPLE_GARBAGE[name]
    simple.send_frames([b"", *frames])
    status, found, text = simple.receive()
    assert (status, found.decode()) == (b"error", code)
    assert 0 < len(text.decode()) < 1_000
    assert simple.ask("ping")[0] == b"ok"
    assert "many" not in simple.topics()


# -- the header of the fast protocol --------------------------------------------------------------------

HEADERS: dict[str, tuple[list[bytes], str, int]] = {
    "cut": ([header()[:15], b""], "bad_request", 0),
    "only a magic": ([binary_codec.MAGIC, b""], "bad_request", 0),
    "too long": ([header() + b"\0", b""], "bad_request", 0),
    "version 2": ([header(version=2), b"", b"\x80"], "unsupported_version", 77),
    "version 255": ([header(version=255), b"", b"\x80"], "unsupported_version", 77),
    "version 2, in which everything else is another": (
        [header(version=2, status=9, zeros=b"\1\2\3"), *[b"\xc1"] * 9],
        "unsupported_version",
        77,
    ),
    "a reserved byte": ([header(zeros=b"\0\1\0"), b"", b"\x80"], "bad_request", 77),
    "a reply": ([header(status=1), b"", b"\x80"], "bad_request", 77),
    "an error": ([header(status=2), b"", b"\x80"], "bad_request", 77),
    "operation 0": ([header(0), b"", b"\x80"], "unknown_operation", 77),
    "operation 99": ([header(99), b"", b"\x80"], "unknown_operation", 77),
    "operation 255": ([header(255), b"", b"\x80"], "unknown_operation", 77),
    "nothing but a header": ([header()], "bad_request", 77),
    "five frames": ([header(), b"", b"\x80", b"", b""], "bad_request", 77),
    "a thousand frames": ([header(), *[b"x"] * 1_000], "bad_request", 77),
    "a payload that is none": ([header(Operation.FETCH), b"t", b"\x80", b"x"], "bad_request", 77),
    "an empty frame behind the last": ([header(Operation.FETCH), b"t", b"\x80", b""], "bad_request", 77),
    "a topic of no use": ([header(), b"t", b"\x80"], "bad_request", 77),
}


@pytest.mark.parametrize("name", HEADERS)
def test_fast_request_with_a_wrong_header_gets_an_error_with_its_correlation_id(
    fast: FastPeer, name: str
) -> None:
    frames, code, correlation = HEADERS[name]
    assert refusal_of(fast, *frames) == (code, correlation)
    still_works(fast)


@pytest.mark.parametrize("correlation", [0, 1, 2**64 - 1])
def test_any_correlation_id_comes_back(fast: FastPeer, correlation: int) -> None:
    assert refusal_of(fast, header(correlation=correlation), b"", b"\x80") == ("", correlation)
    assert refusal_of(fast, header(99, correlation=correlation), b"") == ("unknown_operation", correlation)


def test_request_without_the_whole_magic_gets_a_simple_answer(simple: SimplePeer) -> None:
    simple.send_frames([b"", b"\xd1" + bytes(15), b"", b"\x80"])
    assert simple.receive()[:2] == [b"error", b"unknown_operation"]


# -- arguments ------------------------------------------------------------------------------------------


ARGUMENTS: dict[str, bytes] = {
    "nothing": b"",
    "truncated": packed(after=2**40)[:-1],
    "trailing": packed(after=1) + b"\x80",
    "text": b"after=1",
    "zeros": bytes(100),
    "nil": b"\xc0",
    "an array": msgpack.packb([1, 2]),
    "a number": b"\x01",
    "100,000 levels of arrays": b"\x91" * 100_000 + b"\x80",
    "1,000 levels of maps": b"\x81\xa5after" * 1_000 + b"\x80",
    "5 levels": packed(after={"a": {"b": {"c": {"d": 1}}}}),
    "an array that claims 4 GiB": b"\x81\xa5after\xdd\xff\xff\xff\xff",
    "a map that claims 4 GiB": b"\xdf\xff\xff\xff\xff",
    "a text that claims 4 GiB": b"\x81\xa5after\xdb\xff\xff\xff\xff",
    "bytes that claim 4 GiB": b"\x81\xa5after\xc6\xff\xff\xff\xff",
    "nested claims": b"\x81\xa5after" + b"\xdd\x00\x00\x03\xff" * 500,
    "a key twice": b"\x82\xa5after\x01\xa5after\x02",
    "an unknown key": packed(after=1, other=2),
    "a number as key": b"\x81\x01\x02",
    "bytes as key": b"\x81\xc4\x05after\x01",
    "a key that is no UTF-8": b"\x81\xa2\xff\xfe\x01",
    "an extension": packed(after=msgpack.ExtType(5, b"x")),
    "a timestamp": packed(after=msgpack.Timestamp(1, 2)),
    "NaN": packed(after=float("nan")),
    "infinity": packed(after=float("inf")),
    "a float": packed(after=1.0),
    "a bool": packed(after=True),
    "nil as a number": packed(after=None),
    "text as a number": packed(after="1"),
    "bytes as a number": packed(after=b"1"),
    "a list as a number": packed(after=[1]),
    "-1": packed(after=-1),
    "-2^63": packed(after=-(2**63)),
    "2^56": packed(after=2**56),
    "2^64-1": packed(after=2**64 - 1),
    "records_max 0": packed(records_max=0),
    "records_max 2^32+1": packed(records_max=2**32 + 1),
    "bytes_max 0": packed(bytes_max=0),
    "wait_ms a second too long": packed(wait_ms=601_000),
    "ordinal -2": packed(ordinal=-2),
    "8 KiB": packed(after=1, x="y" * 8_192),
    "a megabyte": packed(after=1, x=bytes(2**20)),
}


ABOVE = {
    "2^56": "bad_pointer",
    "2^64-1": "bad_pointer",
    "records_max 2^32+1": "too_large",
    "wait_ms a second too long": "too_large",
}
"""Numbers above their bounds have codes of their own."""


@pytest.mark.parametrize("name", ARGUMENTS)
def test_malformed_arguments_are_refused(fast: FastPeer, topic: str, name: str) -> None:
    """The topic refuses them, and the front end does for a topic that does not exist."""
    fast.publish(topic, [b"x"])
    arguments = ARGUMENTS[name]
    for target in (topic.encode(), b"no such topic"):
        frames = header(Operation.FETCH), target, arguments
        assert refusal_of(fast, *frames) == (ABOVE.get(name, "bad_request"), 77)
    still_works(fast)


WRONG_FIELDS = {"no such field": 1, "after": -1, "limit": -1, "settings": 1, "before": -1, "durability": 1}


@pytest.mark.parametrize("operation", Operation)
def test_every_operation_refuses_unknown_and_wrong_arguments(
    fast: FastPeer, topic: str, operation: Operation
) -> None:
    if operation is not Operation.CREATE:
        fast.publish(topic, [b"x"])
    for arguments in (
        b"",
        b"\xc1",
        b"\x90",
        *(packed(**{key: value}) for key, value in WRONG_FIELDS.items()),
    ):
        frames = header(operation), b"" if operation in WITHOUT_TOPIC else topic.encode(), arguments
        assert refusal_of(fast, *frames) == ("bad_request", 77), arguments
    still_works(fast)


@needs_proc
def test_hostile_arguments_take_no_memory(fast: FastPeer, broker: BrokerProcess, topic: str) -> None:
    fast.publish(topic, [b"x"])

    def hammer(rounds: int) -> None:
        for _ in range(rounds):
            for arguments in ARGUMENTS.values():
                refusal_of(fast, header(Operation.FETCH), topic.encode(), arguments)

    hammer(5)
    before = resident_bytes(broker.pid)
    hammer(30)
    assert resident_bytes(broker.pid) - before < 15 * 2**20, "a megabyte is among them, 30 times"


def test_error_quotes_large_values_in_part(fast: FastPeer, topic: str) -> None:
    for settings in ({"x" * 5_000: 1}, {"durability": "x" * 5_000}, {"max_age": "é" * 3_000}):
        problem = fast.request(CreateTopic(settings), topic).reply
        assert isinstance(problem, QuothError)
        assert len(problem.text) <= binary_codec.ERROR_CHARACTERS_MAX
    with refused("bad_request"):
        fast.publish(topic, [b"x"], durability="x" * 5_000)


# -- names ----------------------------------------------------------------------------------------------

BAD_NAMES: dict[str, bytes] = {
    "empty": b"",
    "this directory": b".",
    "the directory above": b"..",
    "a path": b"a/b",
    "a path upwards": b"../x",
    "a path from the root": b"/etc/passwd",
    "a slash": b"/",
    "a NUL": b"a\0b",
    "a newline": b"a\nb",
    "an escape": b"\x1b[31m",
    "DEL": b"a\x7f",
    "a C1 control": "a\x85".encode(),
    "a line separator": "a\u2028".encode(),
    "a paragraph separator": "a\u2029".encode(),
    "no UTF-8": b"\xff\xfe",
    "a surrogate": b"\xed\xa0\x80",
    "an overlong slash": b"\xc0\xaf",
    "201 bytes": b"x" * 201,
    "201 bytes in 67 characters": "€".encode() * 67,
    "a megabyte": b"x" * 2**20,
}


@pytest.mark.parametrize("name", BAD_NAMES)
def test_bad_name_is_refused_by_every_operation_and_makes_no_file(
    fast: FastPeer, simple: SimplePeer, broker: BrokerProcess, name: str
) -> None:
    before = outside_of_topics(broker)
    bad = BAD_NAMES[name]
    for operation in set(Operation) - WITHOUT_TOPIC:
        frames = binary_codec.encode_request(example(operation), 77)
        frames[1] = bad
        assert refusal_of(fast, *frames) == ("bad_topic", 77), operation
    with refused("bad_topic"):
        simple.publish(bad, b"x")
    with refused("bad_topic"):
        simple.read(bad)
    assert outside_of_topics(broker) == before
    still_works(fast)


def outside_of_topics(broker: BrokerProcess) -> list[str]:
    """Return all files around the data directory except those in the folders of topics."""
    around = broker.directory.parent
    inside = broker.topics_directory.relative_to(around).as_posix() + "/"
    return [name for name in listing(around) if "/" not in name.removeprefix(inside) or inside not in name]


GOOD_NAMES = (
    "CON", "-rf", "--help", " ", "a b", "~", "a~b", "..a", ".a", "...", "a.b", "%2F", "%", "a%00b", "$HOME",
    "`id`", "a;b", "a'b", 'a"b', "a\\b", "*", "?", "|", "<>", "lock", "topics", "topic.json", "T", "t",
    "é", "e\u0301", "ß", "\uff21\uff22", "😀", "\u202egnp", "\u200b", "x" * 200, "é" * 100, "😀" * 50,
    ".new~0000000000000001", ".gone~0000000000000001", "0" * 17 + ".seg", "a:b", "NUL", "\ufeff",
)  # fmt: skip


def test_every_good_name_is_a_topic_of_its_own_also_after_a_restart(
    start_broker: StartBroker, peers: Peers
) -> None:
    broker = start_broker()
    fast = peers.fast(broker)
    for name in GOOD_NAMES:
        fast.publish(name, [name.encode()])
    for end in (broker.terminate, broker.kill):
        for name in GOOD_NAMES:
            assert fast.fetch(name).values == [name.encode()], name
        end()
        fast.close()
        fast = peers.fast(broker.restart())
    assert peers.simple(broker).topics() == sorted(GOOD_NAMES, key=str.encode)
    for path in broker.topics_directory.iterdir():
        assert path.name.isascii(), path
        assert len(path.name) <= 255
    everything = {Path(name).parts[0] for name in listing(broker.directory)}
    assert everything == {"lock", "topics"}


# -- frames ---------------------------------------------------------------------------------------------


@needs_proc
def test_frame_that_is_too_large_ends_its_connection_only_and_takes_no_memory(
    fast: FastPeer, peers: Peers, broker: BrokerProcess, topic: str
) -> None:
    hello = fast.call(REQUESTS[Operation.HELLO]())
    size = hello.limits["frame_bytes_max"]
    fast.publish(topic, [b"before"])
    before = resident_bytes(broker.pid)
    huge = bytes(size + 1)
    for _ in range(10):
        with FastPeer(peers.context, broker.url) as bad:
            bad.send(Publish(), topic, huge)
            assert bad.is_silent(0.05)
            fast.publish(topic, [b"x"])
    assert resident_bytes(broker.pid) - before < 8 * 2**20
    bad = peers.fast(broker)
    bad.send(Publish(), topic, huge)

    def is_answered() -> bool:
        bad.send(Ping())
        return not bad.is_silent(0.1)

    eventually(is_answered, "the client connects again")
    assert len(fast.read_all(topic)) == 11


@needs_proc
def test_long_poll_with_a_payload_is_refused_and_not_kept(fast: FastPeer, broker: BrokerProcess) -> None:
    before = resident_bytes(broker.pid)
    payload = bytes(2**20)
    for _ in range(200):
        frames = binary_codec.encode_request(
            REQUESTS[Operation.FETCH](wait_ms=60_000), 77, "unknown", payload
        )
        assert refusal_of(fast, *frames) == ("bad_request", 77)
    assert resident_bytes(broker.pid) - before < 32 * 2**20
    assert fast.status(limit=0).waits == 0


def test_largest_simple_publish_is_stored_and_read_at_once(simple: SimplePeer, topic: str) -> None:
    values = [b"%d" % i for i in range(10_000)]
    first, last = simple.publish(topic, *values)
    assert last - first == 9_999
    _, records = simple.read(topic, 0, 10_000)
    assert [value for _, value in records] == values
