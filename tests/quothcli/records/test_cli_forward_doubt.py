"""`quoth forward` with a lost state, a damaged topic or a broker that forgot: each record once, in order."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from kit.broker.brokers import BrokerProcess
from kit.broker.peers import Context
from kit.broker.proxies import Meddler
from kit.client.forwarding import Forwarding, values
from kit.disk.damage import flip
from kit.disk.logs import segments
from kit.machine.commands import Ended
from quothlog import Log
from quothwire.errors import QuothError, error
from quothwire.protocol.binary_codec import Call
from quothwire.protocol.messages import Operation


def through(
    forward: Forwarding, context: Context, meddle: Callable[[Call], QuothError | bool], *options: str
) -> Ended:
    """Forward while the requests are answered by `meddle`, if it does."""
    with Meddler(context, forward.client.url) as meddler:
        meddler.on_request = meddle
        return forward("--format", "raw", *options, url=meddler.url)


def refuse(times: int, code: str, of: bytes = b"") -> Callable[[Call], QuothError | bool]:
    """Refuse some publishes of a batch that holds these bytes."""
    left = [times]

    def meddle(call: Call) -> QuothError | bool:
        if call.operation is Operation.PUBLISH and of in bytes(call.payload) and left[0]:
            left[0] -= 1
            return error(code, "of the test")
        return False

    return meddle


def test_lost_state_is_found_in_the_topic(
    forward: Forwarding, broker: BrokerProcess, context: Context
) -> None:
    """Beside records of other producers, though some are trimmed or damaged."""
    topic, client = forward.topic, forward.client
    forward.fill(50)
    forward()
    client.publish(topic, b"of another producer")
    client.roll(topic)
    forward.fill(50, 100)
    forward.mark.unlink()
    assert forward.count() == 50
    assert forward.stored == [*values(50), b"of another producer", *values(50, 100)]
    client.trim(topic, client.topic(topic).last)
    forward.mark.unlink()
    forward.fill(100, 110)
    assert forward.count() == 10
    assert forward.stored == values(50, 110)
    broker.terminate()
    path = next(path for path in segments(broker.folder(topic)) if b"6061626364" in path.read_bytes())
    flip(path, path.read_bytes().index(b"6061626364"))
    broker.restart()
    forward.mark.unlink()
    assert forward.count() == 0


def test_lost_state_is_an_error_if_no_record_is_left_in_the_topic(forward: Forwarding) -> None:
    forward.fill(1_000)
    forward()
    forward.client.trim(forward.topic, forward.client.topic(forward.topic).last + 1)
    forward.mark.unlink()
    result = forward()
    assert (result.status, "does not tell any more which" in result.err) == (1, True), result
    assert forward.stored == []


def test_topic_that_is_deleted_during_the_search_gets_all_records_again(
    forward: Forwarding, context: Context
) -> None:
    forward.fill(50)
    forward()
    forward.mark.unlink()

    def delete(call: Call) -> bool:
        if call.operation is Operation.FETCH and forward.topic in forward.client.topics():
            forward.client.delete_topic(forward.topic)
        return False

    assert through(forward, context, delete).status == 0
    assert forward.stored == values(50)


def test_records_found_in_the_topic_are_synced_before_the_source_is_trimmed(
    forward: Forwarding, context: Context
) -> None:
    """A power cut may still take readable records, so the segment is sealed first."""
    forward.fill(40, count_limit=10)
    forward()
    forward.mark.unlink()
    left: list[int] = []

    def look(call: Call) -> bool:
        if call.operation is Operation.ROLL:
            left.append(len(segments(forward.log)))
        return False

    result = through(forward, context, look, "--trim")
    assert (result.status, left, len(segments(forward.log))) == (0, [4], 1), result.err
    assert forward.client.topic(forward.topic).segments == 2
    assert forward.stored == values(40)


def test_broker_that_has_forgotten_the_producer_is_asked_for_its_records(
    forward: Forwarding, context: Context
) -> None:
    """Only the topic shows then which records were stored."""
    forward.fill(100)
    assert through(forward, context, refuse(3, "unknown_producer")).lines == ["100"]
    assert forward.stored == values(100)


def test_records_behind_a_gap_wait_for_those_before_it(forward: Forwarding, context: Context) -> None:
    """The broker takes an announced gap, so no batch may overtake another one there."""
    forward.fill(30)
    (path,) = segments(forward.log)
    flip(path, path.read_bytes().index(b"1011121314"))
    result = through(forward, context, refuse(1, "busy", of=b"56789"))
    assert "5 records behind" in result.err
    assert forward.stored == [*values(10), *values(15, 30)]


def test_records_in_the_place_of_lost_ones_come_once_also_after_a_lost_state(
    forward: Forwarding, tmp_path: Path
) -> None:
    """After a power cut at the source its ordinals are given to other records."""
    forward.fill(100)
    shutil.copytree(forward.log, tmp_path / "before")
    forward.fill(100, 200)
    forward()
    mark, name = forward.mark.read_text(), forward.mark.name
    shutil.rmtree(forward.log)
    shutil.copytree(tmp_path / "before", forward.log)
    new = [b"new %d" % number for number in range(30)]
    with Log.open(forward.log) as log:
        log.append(new)
        log.append([b"newer"])
    (forward.log / name).write_text(mark)
    result = forward()
    assert (result.status, "lost records up to ordinal 200" in result.err) == (0, True), result
    assert forward.stored == [*values(200), *new, b"newer"]
    forward.fill(131, 140)
    forward.mark.unlink()
    forward()
    assert forward.stored == [*values(200), *new, b"newer", *values(131, 140)]


def test_restored_topic_gets_its_lost_records(
    forward: Forwarding, broker: BrokerProcess, tmp_path: Path
) -> None:
    forward.fill(50)
    forward()
    broker.terminate()
    shutil.copytree(broker.directory, tmp_path / "backup")
    broker.restart()
    forward.fill(50, 100)
    forward()
    broker.terminate()
    shutil.rmtree(broker.directory)
    shutil.copytree(tmp_path / "backup", broker.directory)
    broker.restart()
    forward.fill(100, 110)
    assert "is looked through" in forward().err
    assert forward.stored == values(110)
