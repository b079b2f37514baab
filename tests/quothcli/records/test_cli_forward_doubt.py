"""`quoth forward` with a lost state or a damaged topic: each record once, in order."""

from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path

import quoth as client_package
from kit.broker.brokers import BrokerProcess, StartBroker
from kit.broker.peers import Context
from kit.broker.proxies import Meddler
from kit.client import forwarding
from kit.client.forwarding import TOPIC, Forward, mark_of, value
from kit.disk.logs import segments
from kit.machine.commands import Command
from quoth import Client
from quothlog import Log
from quothwire.errors import QuothError, error
from quothwire.protocol.binary_codec import Call
from quothwire.protocol.messages import Operation

fill = partial(forwarding.fill, batch=5)


def stored(client: Client, topic: str = TOPIC) -> list[bytes]:
    """Read all values of a topic."""
    return [one.value for one in client.read(topic, limit=100_000)]


def test_trimmed_topic_gets_nothing_twice_after_a_lost_state(
    forward: Forward, client: Client, readings: Path
) -> None:
    fill(readings, range(50))
    forward()
    client.roll(TOPIC)
    fill(readings, range(50, 100))
    forward()
    client.trim(TOPIC, client.topic(TOPIC).last)
    assert stored(client) == [value(number) for number in range(50, 100)]
    mark_of(readings).unlink()
    fill(readings, range(100, 110))
    told = forward("--format", "raw")
    assert (told.lines, told.err) == (["10"], "")
    assert stored(client) == [value(number) for number in range(50, 110)]


def test_damaged_topic_gets_nothing_twice_after_a_lost_state(
    forward: Forward, target: BrokerProcess, client: Client, readings: Path
) -> None:
    fill(readings, range(50))
    forward()
    target.terminate()
    (path,) = (target.directory).rglob("*.seg")
    data = bytearray(path.read_bytes())
    data[data.index(b"2021222324")] ^= 1
    path.write_bytes(data)
    target.restart()
    mark_of(readings).unlink()
    told = forward("--format", "raw")
    assert (told.lines, told.err) == (["0"], "")


def test_records_behind_a_gap_wait_for_those_before_it(
    forward: Forward, target: BrokerProcess, client: Client, readings: Path, context: Context
) -> None:
    """The broker takes an announced gap, so no batch may overtake another one there."""
    fill(readings, range(30))
    path = segments(readings)[0]
    data = bytearray(path.read_bytes())
    data[data.index(b"1011121314")] ^= 1
    path.write_bytes(data)
    refused: list[Call] = []

    def refuse_once(call: Call) -> QuothError | bool:
        if call.operation is Operation.PUBLISH and b"56789" in bytes(call.payload) and len(refused) < 1:
            refused.append(call)
            return error("busy", "of the test")
        return False

    with Meddler(context, target.url) as meddler:
        meddler.on_request = refuse_once
        told = forward("--format", "raw", url=meddler.url)
    assert refused
    assert "5 records behind" in told.err
    assert stored(client) == [value(number) for number in range(30) if not 10 <= number < 15]


def test_second_forwarding_prevents_trimming_from_its_start_on(
    forward: Forward,
    alone: Command,
    client: Client,
    readings: Path,
    start_broker: StartBroker,
    tmp_path: Path,
) -> None:
    fill(readings, range(40), count_limit=10)
    away = start_broker(directory=tmp_path / "away")
    away.kill()
    running = alone.start("forward", str(readings), away.url, "--once", "--timeout", "0.2")
    assert running.error_line().startswith("quoth: disconnected")
    forward("--trim")
    away.restart()
    assert running.end().status == 0
    with client_package.connect(away.url) as there:
        assert stored(there) == [value(number) for number in range(40)]


def test_too_large_batch_is_reported(
    forward: Forward, start_broker: StartBroker, readings: Path, tmp_path: Path
) -> None:
    small = start_broker(directory=tmp_path / "small", frame_bytes_max=70_000)
    with Log.open(readings) as log:
        log.append([b"small"])
        log.append([bytes(200_000)])
    told = forward("--timeout", "2", url=small.url)
    assert (told.status, "too_large: a batch of 200072 bytes" in told.err) == (1, True), told.err
    with client_package.connect(small.url) as there:
        assert stored(there) == [b"small"]


def test_topic_is_not_forwarded_to_itself(
    alone: Command, target: BrokerProcess, client: Client, tmp_path: Path
) -> None:
    client.publish(TOPIC, [b"a", b"b"])
    state = str(tmp_path / "state")
    told = alone("forward", target.url, target.url, "--topic", TOPIC, "--once", "--state", state)
    assert told.status == 2, told
    assert stored(client) == [b"a", b"b"]


def test_records_in_the_place_of_lost_ones_come_once_after_a_lost_state(
    forward: Forward, client: Client, readings: Path, tmp_path: Path
) -> None:
    fill(readings, range(100))
    shutil.copytree(readings, tmp_path / "before")
    fill(readings, range(100, 200))
    forward()
    mark = mark_of(readings).read_text()
    name = mark_of(readings).name
    shutil.rmtree(readings)
    shutil.copytree(tmp_path / "before", readings)
    (readings / name).write_text(mark)
    with Log.open(readings) as log:
        log.append([b"new %d" % number for number in range(30)])
    forward()
    assert len(stored(client)) == 230
    mark_of(readings).unlink()
    forward()
    assert len(stored(client)) == 230


def test_unknown_progress_is_an_error(forward: Forward, client: Client, readings: Path) -> None:
    """The state is lost, and all records of the topic are trimmed."""
    fill(readings, range(1_000))
    forward()
    client.trim(TOPIC, client.topic(TOPIC).last + 1)
    assert stored(client) == []
    mark_of(readings).unlink()
    told = forward()
    assert (told.status, "does not tell any more which" in told.err) == (1, True), told.err
    assert stored(client) == []


def test_trim_needs_a_state_in_the_directory_of_the_log(
    forward: Forward, readings: Path, tmp_path: Path
) -> None:
    fill(readings, range(40), count_limit=10)
    for state in (tmp_path / "a.forward", readings / "a.state"):
        told = forward("--trim", "--state", str(state))
        assert (told.status, "NAME.forward" in told.err) == (2, True), told.err


def test_restored_topic_gets_its_lost_records(
    forward: Forward, target: BrokerProcess, client: Client, readings: Path, tmp_path: Path
) -> None:
    fill(readings, range(50))
    forward()
    target.terminate()
    shutil.copytree(target.directory, tmp_path / "backup")
    target.restart()
    fill(readings, range(50, 100))
    forward()
    target.terminate()
    shutil.rmtree(target.directory)
    shutil.copytree(tmp_path / "backup", target.directory)
    target.restart()
    fill(readings, range(100, 110))
    assert "is looked through" in forward().err
    assert stored(client) == [value(number) for number in range(110)]


def test_topic_that_is_deleted_meanwhile_gets_all_records_again(
    forward: Forward, target: BrokerProcess, client: Client, readings: Path, context: Context
) -> None:
    fill(readings, range(50))
    forward()
    mark_of(readings).unlink()

    def delete(call: Call) -> bool:
        if call.operation is Operation.FETCH and TOPIC in client.topics():
            client.delete_topic(TOPIC)
        return False

    with Meddler(context, target.url) as meddler:
        meddler.on_request = delete
        told = forward("--topic", TOPIC, url=meddler.url)
    assert told.status == 0, told.err
    assert stored(client) == [value(number) for number in range(50)]


def test_records_found_in_the_topic_are_synced_before_the_source_is_trimmed(
    forward: Forward, target: BrokerProcess, client: Client, readings: Path, context: Context
) -> None:
    """A power cut may still take readable records, so the segment is sealed first."""
    fill(readings, range(40), count_limit=10)
    forward("--topic", TOPIC)
    mark_of(readings).unlink()
    left: list[int] = []

    def look(call: Call) -> bool:
        if call.operation is Operation.ROLL:
            left.append(len(segments(readings)))
        return False

    with Meddler(context, target.url) as meddler:
        meddler.on_request = look
        told = forward("--topic", TOPIC, "--trim", url=meddler.url)
    assert (told.status, left, len(segments(readings))) == (0, [4], 1), told.err
    assert client.topic(TOPIC).segments == 2
    assert stored(client) == [value(number) for number in range(40)]
