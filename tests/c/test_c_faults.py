"""Faults around the C library: brokers that die, stop, are absent or answer garbage, and full memory."""

from __future__ import annotations

import random
import threading
import time
from pathlib import Path

import pytest
import zmq

import quoth
from kit.broker.brokers import BrokerProcess, StartBroker
from kit.broker.peers import Context
from kit.client.numbered import numbered
from kit.deadlines import eventually
from kit.machine.commands import COMMAND_S
from kit.machine.cprograms import MakeCalls, fail_each_allocation
from kit.machine.ports import free_port
from kit.scale import times

RESTARTS = times(5, 20)
RECORDS = times(10_000, 40_000)
EACH_US = 300
"""Pause between two records, so that the broker dies while they are on their way."""
TIMEOUT_MS = 400
KEPT_MS = 20_000
"""Timeout of what is to end long before."""
LATE_S = 6.0
"""How much later than its deadline a call may end on a busy machine. The default timeout is longer."""
CALLS = (
    ["ping"],
    ["publish", "t", 0, "00:~:~"],
    ["describe", "t"],
    ["list"],
    ["read", "t", 0, 0, 0, 0, 0],
    ["produce", "t", 0, 3, 1, 1, TIMEOUT_MS],
    ["abort", "t", "etl", 1],
    ["group_info", "t", "billing"],
    ["group_join", "t", "billing", 10, 0],
)


def count_of(broker: BrokerProcess, topic: str) -> int:
    """Return the number of records of a topic."""
    with quoth.connect(broker.url) as client:
        return client.topic(topic).count if topic in client.topics() else 0


@pytest.mark.timeout(300)
def test_nothing_is_lost_or_twice_while_the_broker_is_killed_again_and_again(
    make_calls: MakeCalls, start_broker: StartBroker, topic: str
) -> None:
    broker = start_broker()
    producing, consuming = make_calls(broker.url), make_calls(broker.url)
    consuming.begin("consume", topic, 0, RECORDS)
    producing.begin("produce", topic, 0, RECORDS, 50, 32, 0, EACH_US)
    for number in range(1, RESTARTS + 1):
        least = RECORDS * number // (RESTARTS + 2)
        eventually(lambda: count_of(broker, topic) >= least, "records arrive", COMMAND_S)  # noqa: B023
        broker.kill()
        broker.restart()
    (line,) = producing.take()
    assert line.split()[:3] == ["ok", str(RECORDS), "0"]
    assert consuming.take() == [f"ok {RECORDS}"]
    with quoth.connect(broker.url) as client:
        found = [message.value for batch in client.batches(topic) for message in batch]
    assert found == [numbered(number).value for number in range(RECORDS)]


@pytest.mark.parametrize("words", CALLS, ids=lambda words: str(words[0]))
def test_calls_end_in_time_when_the_broker_is_stopped(
    make_calls: MakeCalls, start_broker: StartBroker, words: list[object]
) -> None:
    broker = start_broker()
    calls = make_calls(broker.url)
    calls("timeout", TIMEOUT_MS)
    broker.freeze()
    began = time.monotonic()
    *_, line = (one for one in calls(*words) if one.startswith(("error", "failed")))
    assert time.monotonic() - began < TIMEOUT_MS / 1e3 + LATE_S
    assert line.split()[1] in ("timed_out", "disconnected"), "a connection of its own gets no handshake"
    broker.kill()


def test_connecting_ends_in_time_when_there_is_no_broker(make_calls: MakeCalls) -> None:
    began = time.monotonic()
    calls = make_calls(f"tcp://127.0.0.1:{free_port()}", str(TIMEOUT_MS))
    assert time.monotonic() - began < TIMEOUT_MS / 1e3 + LATE_S
    assert calls.greeting[0].startswith("error disconnected 1 hello: no broker answers at tcp://127.0.0.1:")


@pytest.mark.parametrize("keys", [["short"] * 3, ["_" * 40] * 3])
def test_wrong_curve_keys_are_refused(make_calls: MakeCalls, broker: BrokerProcess, keys: list[str]) -> None:
    calls = make_calls(broker.url, str(KEPT_MS), "0", *keys)
    assert calls.greeting[0].startswith("error bad_request 0 ")


def test_broker_without_keys_refuses_a_client_that_has_one(
    make_calls: MakeCalls, broker: BrokerProcess
) -> None:
    server, _ = zmq.curve_keypair()
    pair = zmq.curve_keypair()
    calls = make_calls(broker.url, str(KEPT_MS), "0", server.decode(), *(key.decode() for key in pair))
    assert calls.greeting[0].startswith("error auth_failed 0 ")


def garbage(rng: random.Random, header: bytes) -> list[bytes]:
    """Return the frames of an answer that are wrong in one way or another."""
    reply = bytearray(header)
    reply[4] = rng.choice([0, 1, 1, 1, 2, 2, 77])
    reply[rng.randrange(16)] ^= rng.choice([0, 0, 0, 1, 255])
    frames = [bytes(reply), rng.randbytes(rng.randrange(40)), rng.randbytes(rng.randrange(300))]
    return frames[: rng.randrange(4)] + [b""] * rng.randrange(2)


@pytest.mark.parametrize("words", CALLS, ids=lambda words: str(words[0]))
def test_calls_end_in_time_when_the_answers_are_garbage(
    make_calls: MakeCalls, context: Context, rng: random.Random, words: list[object]
) -> None:
    """The first answer is right, so that the client connects."""
    with context.socket(zmq.ROUTER) as broker:
        broker.bind(url := f"tcp://127.0.0.1:{free_port()}")
        ended = threading.Event()
        welcome = bytes.fromhex(
            "85a6736572766572a178a876657273696f6e739101aa6f7065726174696f6e7390a66c696d697473"
            "80ad616e6e6f756e63656d656e7473a0"
        )

        def answer() -> None:
            count = 0
            while not ended.is_set():
                if not broker.poll(20):
                    continue
                connection, empty, header, *_ = broker.recv_multipart()
                good = [bytes([*header[:4], 1, *header[5:]]), welcome]
                frames = garbage(rng, header) if count else good
                broker.send_multipart([connection, empty, *frames])
                count += 1

        thread = threading.Thread(target=answer)
        thread.start()
        try:
            calls = make_calls(url, str(KEPT_MS), "20")
            calls("timeout", TIMEOUT_MS)
            began = time.monotonic()
            calls(*words)
            assert time.monotonic() - began < TIMEOUT_MS / 1e3 + LATE_S
        finally:
            ended.set()
            thread.join()


def test_an_allocation_that_fails_is_an_error_and_no_crash(
    built: Path, broker: BrokerProcess, topic: str
) -> None:
    """The first allocation fails, then the second, and so on until none does."""
    assert fail_each_allocation(built, broker.url, topic) > 10
