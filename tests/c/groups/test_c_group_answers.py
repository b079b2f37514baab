"""Answers to a member of a group in C that no broker gives: it ends its calls and reads no wrong byte."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import zmq

from kit.broker.peers import Context
from kit.machine.cprograms import MakeCalls
from kit.machine.ports import free_port
from kit.scale import times
from quothwire import batch as wire
from quothwire.batch import Bytes
from quothwire.protocol.binary_codec import Call, decode_call, encode_reply
from quothwire.protocol.group_messages import GroupFetched, GroupInfo, GroupSettled
from quothwire.protocol.group_settings import GroupSettings
from quothwire.protocol.messages import Operation, Welcome

FETCHES = times(150, 3_000)
LOG = 7
FIRST = 1_000
TIMEOUT_MS = 5_000
WELCOME = Welcome("quoth", [1], [], {}, "")
INFO = GroupInfo(LOG, "g", GroupSettings().to_map(), 1, False, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, [], 0.0)


def batches(rng: random.Random) -> bytes:
    """Return batches one behind the other, some of them damaged or cut."""
    payload, base = b"", FIRST + rng.randrange(3)
    for _ in range(rng.randrange(4)):
        values = [rng.randbytes(rng.randrange(20)) for _ in range(rng.randrange(1, 6))]
        encoded = wire.encode(values)
        header = wire.parse_header(encoded, 0)._replace(base=base, ordinal=base - rng.randrange(FIRST))
        payload += wire.stamp(header, LOG) + encoded[wire.HEADER_BYTES :]
        base += len(values) + rng.choice([0, 0, 2])
    if payload and rng.random() < 0.4:
        place = rng.randrange(len(payload))
        payload = payload[:place] + rng.randbytes(1) + payload[place + 1 :]
    return payload[: rng.randrange(len(payload) + 1)] if rng.random() < 0.2 else payload


def number(rng: random.Random) -> int:
    """Return a pointer that is likely to lie in a batch, or any number."""
    near = FIRST + rng.randrange(-2, 25)
    return rng.choice([near, near, near, near, 0, 1, 2**56 - 1, 2**64 - 1, rng.getrandbits(64)])


def fetched(rng: random.Random) -> GroupFetched:
    """Return leases in any order, of any ranges."""
    leases = [
        [rng.choice([0, 7, 7, 7, 2**64 - 1]), 1, number(rng), number(rng)] for _ in range(rng.randrange(6))
    ]
    if rng.random() < 0.7:
        leases = sorted(
            ([token, attempts, *sorted(bounds)] for token, attempts, *bounds in leases),
            key=lambda row: row[2],
        )
    lease_ms = rng.choice([0, 1, 30_000, 2**64 - 1])
    gone, damaged = rng.choice([0, 5, 2**64 - 1]), rng.choice([0, 2, 2**64 - 1])
    newest = rng.choice([0, FIRST, 2**56 - 1])
    return GroupFetched(LOG, rng.choice([1, 2**64 - 1]), leases, lease_ms, gone, damaged, newest, 9)


def answer_to(call: Call, rng: random.Random) -> list[Bytes]:
    """Return the frames of an answer."""
    operation, correlation = call.operation, call.correlation
    if operation is Operation.OPEN_GROUP:
        return encode_reply(operation, correlation, INFO, None)
    if operation is Operation.GROUP_FETCH:
        return encode_reply(operation, correlation, fetched(rng), batches(rng))
    if operation is Operation.GROUP_SETTLE:
        lost = [sorted([number(rng), number(rng)]) for _ in range(rng.randrange(4))]
        return encode_reply(
            operation, correlation, GroupSettled(rng.getrandbits(64), 0, lost, "written"), None
        )
    return encode_reply(operation, correlation, WELCOME, None)


@contextmanager
def answering(context: Context, rng: random.Random) -> Iterator[str]:
    """Play a broker for the time of the block, at the address that it gets."""
    ended = threading.Event()
    with context.socket(zmq.ROUTER) as broker:
        broker.bind(url := f"tcp://127.0.0.1:{free_port()}")

        def answer() -> None:
            while not ended.is_set():
                if broker.poll(20):
                    connection, empty, *frames = broker.recv_multipart()
                    broker.send_multipart([connection, empty, *answer_to(decode_call(frames), rng)])

        thread = threading.Thread(target=answer)
        thread.start()
        try:
            yield url
        finally:
            ended.set()
            thread.join()


def test_a_member_reads_no_wrong_byte_of_any_answer(
    make_calls: MakeCalls, context: Context, rng: random.Random
) -> None:
    """The sanitizers end the program at a wrong access."""
    with answering(context, rng) as url:
        calls = make_calls(url, str(TIMEOUT_MS))
        assert calls("group_join", "t", "g", 100, 0, "worker") == ["ok"]
        records = 0
        for _ in range(FETCHES):
            for line in calls("group_fetch", 0, *([rng.randrange(5)] if rng.random() < 0.3 else [])):
                word, pointer, *_ = line.split()
                records += word == "leased"
                kind = rng.choice(["ack", "nack", "release", "extend", "term"])
                if word == "leased":
                    calls(f"group_{kind}_only", pointer, rng.randrange(100))
            if rng.random() < 0.2:
                calls(rng.choice(["group_flush", "group_leave"]), TIMEOUT_MS)
        assert calls("group_count")[0].split()[1] == str(records)
        assert records > FETCHES
