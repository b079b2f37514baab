"""Transactions when things go wrong: whole and once, whatever becomes of connections, brokers and writers."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from kit.broker.brokers import BrokerProcess, StartBroker
from kit.broker.proxies import Meddler
from kit.client.records import Connect, messages, staged
from kit.deadlines import DEADLINE_S, pause
from kit.machine.processes import peak_of
from kit.scale import times
from quoth import Ack, Client, Disconnected, Transaction
from quoth.core.outgoing import BATCH_BYTES
from quoth.core.staging import IN_FLIGHT_BYTES
from quothwire.protocol.binary_codec import Answer, Call
from quothwire.protocol.messages import Published

SIZE = 20_000
"""Bytes of a value: fifty fill a batch."""


def planned(name: str, count: int, size: int = SIZE) -> list[bytes]:
    """Values that are known by their beginning."""
    return [f"{name} {i} ".encode().ljust(size, b".") for i in range(count)]


def check_stored(client: Client, topic: str, ack: Ack, values: list[bytes]) -> None:
    """The topic holds these values and no others, where the acknowledgement says, without a hole."""
    found = messages(client, topic)
    assert [one.value[:30] for one in found] == [value[:30] for value in values]
    assert all(one.value == value for one, value in zip(found, values, strict=True))
    assert [one.pointer for one in found] == list(range(ack.first, ack.last + 1))
    assert client.topic(topic).counters["staged_bytes"] == 0


# -- staging ------------------------------------------------------------------------------------------------


def test_part_is_whole_though_the_broker_is_killed_while_it_is_written(
    own_broker: BrokerProcess, own_client: Client, rng: random.Random, seed: int
) -> None:
    """The broker keeps acknowledged batches through a kill."""
    own_client.publish("t", b"before")
    own_client.trim("t", 2**56 - 1)
    transaction = own_client.transaction("t", "app", 0)
    values = planned("a", 2_000)
    kills = times(2, 10)
    writer = transaction.part(0)
    at = sorted(rng.sample(range(1, 100), kills))
    for number in range(100):
        if number in at:
            own_broker.kill()
            own_broker.restart()
        writer.write(values[20 * number : 20 * number + 20])
    part = writer.finish()
    assert part.records == len(values), f"QUOTH_SEED={seed}"
    check_stored(own_client, "t", transaction.publish([part]), values)


def test_writer_without_a_broker_reports_its_staged_batches(
    own_broker: BrokerProcess, own_client: Client
) -> None:
    transaction = own_client.transaction("t", "app", 0)
    writer = transaction.part(0, timeout=0.5)
    writer.write(planned("a", 200))
    own_broker.kill()
    with pytest.raises(Disconnected) as problem:
        writer.finish()
    assert "part 0 of version 0 of 'app' on topic 't'" in problem.value.text
    assert "nothing of the part is published" in problem.value.hint
    with pytest.raises(Disconnected):
        writer.write(b"x")
    own_broker.restart()
    own_client.timeout = DEADLINE_S
    check_stored(own_client, "t", transaction.publish([staged(transaction, 0, [b"x"])]), [b"x"])


# -- publishing ---------------------------------------------------------------------------------------------


def test_publication_whose_answer_is_lost_is_requested_again(
    impatient: Client, meddler: Meddler, topic: str
) -> None:
    impatient._timing.publish_wait = 0.1
    lost: list[Published] = []

    def lose(call: Call, answer: Answer) -> bool:
        if isinstance(answer.reply, Published) and len(lost) < 3:
            lost.append(answer.reply)
            return True
        return False

    transaction = impatient.transaction(topic, "app", 0)
    values = planned("a", 10)
    part = staged(transaction, 0, values)
    meddler.on_reply = lose
    ack = transaction.publish([part])
    assert ack.duplicate
    assert [(one.first, one.duplicate) for one in lost] == [
        (ack.first, False),
        (ack.first, True),
        (ack.first, True),
    ]
    check_stored(impatient, topic, ack, values)


def test_transaction_is_whole_and_once_though_the_broker_is_killed_while_it_is_published(
    own_broker: BrokerProcess, own_client: Client, rng: random.Random, seed: int
) -> None:
    """Killed at any moment, started again: the same call is answered, and nothing is there twice."""
    for version in range(times(4, 120)):
        topic, count = f"t{version}", (10, 1_000)[version % 2]
        transaction = own_client.transaction(topic, "app", version)
        values = planned(f"{version}", count)
        parts = [staged(transaction, number, values[number::2]) for number in range(2)]
        with ThreadPoolExecutor() as pool:
            publishing = pool.submit(transaction.publish, parts)
            pause(rng.uniform(0, 0.05))
            own_broker.kill()
            own_broker.restart()
            ack = publishing.result(2 * DEADLINE_S)
        assert transaction.publish(parts) == Ack(ack.first, ack.last, count, "synced", True)
        check_stored(own_client, topic, ack, values[::2] + values[1::2])


def test_concurrent_publications_store_a_transaction_once(
    client: Client, topic: str, transaction: Transaction
) -> None:
    """As by a driver that was believed to be dead."""
    values = planned("a", 1_000)
    parts = [staged(transaction, number, values) for number in range(2)]
    with ThreadPoolExecutor(8) as pool:
        acks = list(pool.map(lambda _: transaction.publish(parts), range(8)))
    assert len({(ack.first, ack.last) for ack in acks}) == 1
    assert sorted(ack.duplicate for ack in acks) == [False] + [True] * 7
    check_stored(client, topic, acks[0], values * 2)


def test_publication_may_take_long_only_while_a_broker_answers(
    start_broker: StartBroker, connect: Connect
) -> None:
    broker = start_broker()
    client = connect(broker, timeout=DEADLINE_S)
    transaction = client.transaction("t", "app", 0)
    part = staged(transaction, 0, planned("a", 10))
    timing, kept = client._timing, replace(client._timing)
    client.timeout = timing.resend = timing.publish_wait = timing.publish_absence = 0.1
    broker.kill()
    for timeout in (0.3, 600.0):
        with pytest.raises(Disconnected, match="no broker answers"):
            transaction.publish([part], timeout=timeout)
    broker.restart()
    timing.publish_absence = kept.publish_absence
    assert transaction.publish([part]).count == 10


# -- much ---------------------------------------------------------------------------------------------------


def test_writer_buffers_only_batches_in_flight(transaction: Transaction) -> None:
    """57 MiB, far more than may be in memory."""
    portion = planned("a", 50)

    def write() -> None:
        with transaction.part(0) as writer:
            for _ in range(60):
                writer.write(portion)

    assert peak_of(write) < 2 * IN_FLIGHT_BYTES + 4 * BATCH_BYTES
    assert transaction.abort().bytes > 40 * 2**20, "some was on its way"
