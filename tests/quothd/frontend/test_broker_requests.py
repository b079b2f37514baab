"""Fields and frames of the requests of every operation, in both protocols, and the texts of errors.

The tables come from the messages' declarations and from PROTOCOL.md, which have to agree.
"""

from __future__ import annotations

import dataclasses
import random
from typing import Any

import msgpack

from kit.broker.peers import FastPeer, SimplePeer
from kit.broker.requests import OF_OPERATIONS, SAMPLES, example, required
from kit.broker.transactions import Job, staged
from kit.disk.logs import encoded
from kit.scale import times
from kit.text.wording import names_python
from quothwire.errors import QuothError, error
from quothwire.protocol import binary_codec, text_codec
from quothwire.protocol.group_messages import GroupFetch, ListGroups, OpenGroup
from quothwire.protocol.messages import REQUESTS, WITH_PAYLOAD, WITHOUT_TOPIC, Operation, TopicInfo
from quothwire.protocol.settlement import Settle, Settlement, encode_settlements


def payload_of(operation: Operation) -> list[bytes]:
    """Return the fourth frame of an example, if it has one."""
    payloads = {
        Operation.PUBLISH: encoded([b"x"]),
        Operation.STAGE: staged([b"x"], 3),
        Operation.PUBLISH_STAGED: b"",
        Operation.GROUP_SETTLE: encode_settlements([Settlement(Settle.ACK, 1, 2**56 - 1)]),
    }
    return [payloads[operation]] if operation in WITH_PAYLOAD else []


def frames_of(operation: Operation, topic: str, arguments: dict[str, Any]) -> list[bytes]:
    header = binary_codec.encode_request(example(operation), 7)[0]
    name = b"" if operation in WITHOUT_TOPIC else topic.encode()
    return [header, name, msgpack.packb(arguments), *payload_of(operation)]


def answer_to(fast: FastPeer, frames: list[bytes]) -> QuothError | None:
    """Send a request; returns its error, None if it succeeded."""
    fast.send_frames([b"", *frames])
    reply = fast.receive().reply
    return reply if isinstance(reply, QuothError) else None


def filled(fast: FastPeer, topic: str) -> Job:
    """Publish records to two segments, and stage a part of version 3 of the examples' application.

    A member of one of the two groups has all records.
    """
    for _ in range(2):
        fast.publish(topic, [b"kept"])
        fast.call(REQUESTS[Operation.ROLL](), topic)
    fast.call(OpenGroup(SAMPLES["group"]), topic)
    fast.call(OpenGroup(OF_OPERATIONS[Operation.COMMIT_CURSOR]["group"], settings={"mode": "cursor"}), topic)
    fast.call(GroupFetch(SAMPLES["group"]), topic)
    job = Job(fast, topic)
    job.stage(3, 0, [[b"staged"]], attempt=9)
    return job


def state_of(fast: FastPeer, topic: str, job: Job) -> tuple[Any, ...]:
    """Return the state that a request could have changed."""
    found: TopicInfo = fast.describe(topic)
    groups = [{**one, "idle": 0} for one in fast.call(ListGroups(), topic).groups]
    return found.log, found.count, found.first, found.segments, found.settings, job.standing(3), groups


def test_a_request_without_a_required_field_or_with_a_frame_too_many_does_nothing(
    fast: FastPeer, topic: str
) -> None:
    """The error names all missing fields; with them the request succeeds."""
    for operation in Operation:
        name = f"{topic}-{operation.name}"
        job = filled(fast, name)
        before = state_of(fast, name, job)
        target = f"{topic}-new" if operation is Operation.CREATE else name
        arguments, names = dataclasses.asdict(example(operation)), required(operation)
        whole = frames_of(operation, target, arguments)
        wrong = [({key: arguments[key] for key in arguments if key != one}, [one]) for one in names]
        for given, missing in (*wrong, *([({}, names)] if names else [])):
            problem = answer_to(fast, frames_of(operation, target, given))
            assert problem is not None, "it succeeded"
            expected = f"{operation.name.lower()} lacks {', '.join(missing)}"
            assert (problem.code, problem.text) == ("bad_request", expected)
        problem = answer_to(fast, [*whole, b""])
        assert problem is not None
        assert problem.text.startswith(f"{operation.name.lower()} has 2 to {len(whole)} frames")
        assert state_of(fast, name, job) == before
        assert answer_to(fast, whole) is None


# -- the same mistake has the same code in both protocols ---------------------------------------------------

SAME: dict[str, tuple[list[object], Operation, dict[str, Any], str]] = {
    "pointer 2^56": (["read", "t", 2**56], Operation.FETCH, {"after": 2**56}, "bad_pointer"),
    "pointer 2^64 - 1": (["read", "t", 2**64 - 1], Operation.FETCH, {"after": 2**64 - 1}, "bad_pointer"),
    "a pointer that is text": (["read", "t", "now"], Operation.FETCH, {"after": "now"}, "bad_request"),
    "a limit too high": (["read", "t", 0, 10_001], Operation.LIST, {"limit": 1_001}, "too_large"),
    "records_max too high": (["read", "t", 0, 2**33], Operation.FETCH, {"records_max": 2**33}, "too_large"),
    "a limit of 0": (["read", "t", 0, 0], Operation.FETCH, {"records_max": 0}, "bad_request"),
    "a wait too long": (["read", "t", 0, 1, 600_001], Operation.FETCH, {"wait_ms": 600_001}, "too_large"),
    "no name to go on after": (["topics", "a/b"], Operation.LIST, {"after": "a/b"}, "bad_topic"),
    "nothing there": (["read", "no such topic"], Operation.FETCH, {}, "unknown_topic"),
}


def test_the_same_mistake_has_the_same_code_in_both_protocols(fast: FastPeer, simple: SimplePeer) -> None:
    fast.publish("t", [b"x"])
    for name, (frames, operation, arguments, code) in SAME.items():
        status, answered, text = simple.ask(*map(str, frames))
        topic = "no such topic" if code == "unknown_topic" else "t"
        problem = answer_to(fast, frames_of(operation, topic, arguments))
        assert problem is not None, name
        assert (status, answered.decode(), problem.code) == (b"error", code, code), name
        if code in ("bad_request", "too_large", "bad_pointer"):
            for words in (text.decode(), problem.text):
                assert "it must be an integer from " in words, name


# -- the texts of errors -----------------------------------------------------------------------------------

WRONG: tuple[Any, ...] = (
    None, True, False, -1, 0, 1, 2**56, 2**63, 2**64 - 1, -(2**63), 1.0, float("nan"), float("inf"), "", "x",
    "no\nline", b"", b"-1", b"\xff", [], [1], [[]], {}, {"a": 1}, {"a": None}, {1: 2},
    {"durability": b"x"}, {"max_age": "x"}, {"max_age": None}, {"size_limit": [1]}, {"max_bytes": -1},
    {"max_agee": 1}, {"a": {"b": {"c": {}}}}, msgpack.ExtType(5, b"x"), msgpack.Timestamp(1, 2), ["x"] * 65,
)  # fmt: skip
RAW = (
    b"", b"\xc1", b"\x90", b"\xc0", b"\x81", b"\x81\xa1a", b"\x80\x80", b"\x81\xa1\xff\x01", b"\x81\x01\x01",
    b"\xdf\xff\xff\xff\xff", b"\x81\xa5after\xdd\xff\xff\xff\xff", b"\x91" * 2_000, b"\x81\x80\x01",
    b"\x82\xa5after\x01\xa5after\x02", bytes(9_000), b"\x81\xa5after\xc6\xff\xff\xff\xff",
    b"\x81\xa5after\xdb\xff\xff\xff\xff",
)  # fmt: skip
SIMPLE = (
    b"", b"-1", b"+1", b"1_000", b" 1", "\uff11".encode(), b"1e3", b"9" * 40, b"\xff\xfe", b"a/b", b".",
    b"\0", b"x" * 300, b"72057594037927936", b"0", b"10001",
)  # fmt: skip


def fast_errors(fast: FastPeer, topic: str, rng: random.Random) -> list[QuothError]:
    """Return the errors of many wrong requests in the fast protocol."""
    found: list[QuothError | None] = []
    for operation in Operation:
        right = dataclasses.asdict(example(operation))
        frames = frames_of(operation, topic, right)
        wrongs = [
            msgpack.packb({**right, name: wrong})
            for name in right
            for wrong in rng.sample(WRONG, times(12, len(WRONG)))
        ]
        for packed in (*wrongs, *RAW, msgpack.packb({**right, "other": 1}), msgpack.packb({b"after": 1})):
            found.append(answer_to(fast, [*frames[:2], packed, *frames[3:]]))
        for name in (b"", b".", b"a/b", b"\xff", b"\0", b"x" * 201, "\u2028".encode()):
            found.append(answer_to(fast, [frames[0], name, *frames[2:]]))
        for payload in (b"", b"x", bytes(64), bytes(96), rng.randbytes(200)):
            found.append(answer_to(fast, [*frames[:3], payload]))
    return [problem for problem in found if problem is not None]


def simple_errors(simple: SimplePeer, rng: random.Random) -> list[QuothError]:
    """Return the errors of many wrong requests in the simple protocol."""
    requests: list[list[bytes]] = [[], [b""], [b"PING"], [b"\xff"], [b"x" * 1_000]]
    for word in text_codec.OPERATIONS:
        requests += [[word], *([word, part] for part in SIMPLE)]
        requests += [[word, *rng.choices(SIMPLE, k=rng.randrange(1, 6))] for _ in range(60)]
        requests += [[word, b"words", *rng.choices(SIMPLE, k=rng.randrange(1, 4))] for _ in range(60)]
        requests += [[word, b"words", b"g", b"1-1-1", *rng.choices(SIMPLE, k=2)] for _ in range(20)]
    found = []
    for frames in requests:
        simple.send_frames([b"", *frames])
        status, *rest = simple.receive()
        if status == b"error":
            found.append(error(rest[0].decode(), rest[1].decode(), ""))
    return found


def test_no_error_names_python_or_is_without_a_reason(
    fast: FastPeer, simple: SimplePeer, topic: str, rng: random.Random, seed: int
) -> None:
    """Authors of clients in any language read it."""
    fast.publish(topic, [b"x"])
    fast.publish("words", [b"x"])
    problems = [*fast_errors(fast, topic, rng), *simple_errors(simple, rng)]
    assert len(problems) > 500
    said = {f"{problem.code}: {problem.text}": problem for problem in problems}
    assert [found for found in map(names_python, said.values()) if found] == [], f"QUOTH_SEED={seed}"
    assert [text for text in said if not text.isprintable() or text.endswith(": ")] == []
    assert {problem.code for problem in problems} >= {"bad_request", "bad_topic", "bad_pointer", "too_large"}
