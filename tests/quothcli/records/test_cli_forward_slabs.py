"""`quoth forward` of queuefka's slabs: every record arrives once, also while processes die."""

from __future__ import annotations

import json
import random
import shutil
import signal
from contextlib import closing
from pathlib import Path

import pytest
import zmq

from kit.broker.brokers import BrokerProcess, StartBroker
from kit.broker.proxies import Meddler, Wire
from kit.client.forwarding import Forwarding, count_of, stored, value, values
from kit.client.forwarding_failures import Device, Failures
from kit.deadlines import eventually
from kit.disk.damage import flip
from kit.disk.logs import segments
from kit.machine.commands import Command
from kit.scale import times
from quoth import Client, Gap, connect
from quothlog.slabs import SlabAddresses, SlabReader, SlabRecord, SlabWriter
from quothlog.slabs.slab_format import encode_record
from quothwire.protocol.binary_codec import Answer, Call
from quothwire.protocol.messages import Operation

FAILURES = 8

WRITER = """
import random, sys, time
from quothlog.slabs import SlabReader, SlabRecord, SlabWriter
rng = random.Random(int(sys.argv[2]))
with SlabWriter(sys.argv[1], 5_000) as writer:
    found = [int(one.value) for one in SlabReader(sys.argv[1]) if isinstance(one, SlabRecord)]
    number = found[-1] + 1 if found else 0
    print("ready", flush=True)
    while number < int(sys.argv[3]):
        writer.write(b"%d" % number)
        number += 1
        if rng.random() < 0.02:
            writer.flush()
            time.sleep(0.005)
"""
"""Writes the number of each record as its value, and goes on behind the last one."""


@pytest.fixture(autouse=True)
def states(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the states."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state" / "quoth"


def fill(directory: Path, *numbers: int, slab_bytes: int = 200) -> None:
    with SlabWriter(directory, slab_bytes) as writer:
        for number in range(*numbers):
            writer.write(value(number))


def write(writer: SlabWriter, *numbers: int) -> None:
    for number in range(*numbers):
        writer.write(value(number))
    writer.flush()


def addresses_in(states: Path) -> list[int]:
    return [json.loads(path.read_text())["address"] for path in states.glob("*.forward")]


def slabs(directory: Path) -> list[Path]:
    return sorted(directory.glob("*.slab"))


def test_records_arrive_and_forwarding_continues_where_it_was(forward: Forwarding, states: Path) -> None:
    for begin in range(0, 300, 100):
        fill(forward.log, begin, begin + 100)
        assert forward.count() == 100
    assert forward.count() == 0
    assert forward.stored == values(300)
    assert {path.suffix for path in forward.log.iterdir()} == {".slab"}
    (state,) = states.glob("*.forward")
    content = json.loads(state.read_text())
    assert content["address"] == SlabReader(forward.log).end
    with connect(forward.client.url) as client:
        addresses = SlabAddresses(
            lambda after: next(client.stored(forward.topic, after=after), None), content["producer"]
        )
        first, *_, last = client.read(forward.topic, limit=1_000)
        assert addresses.pointer_of(0) == first.pointer
        record = [one for one in SlabReader(forward.log) if isinstance(one, SlabRecord)][-1]
        assert (addresses.address_of(last.pointer), record.value) == (record.address, last.value)


def test_follows_a_writer_and_ends_when_it_is_asked_to(forward: Forwarding, states: Path) -> None:
    client, name = forward.client, f"{forward.topic}-other"
    with SlabWriter(forward.log) as writer:
        running = forward.command.start("forward", str(forward.log), client.url, "--topic", name)
        for number in range(50):
            writer.write(value(number))
        writer.flush()
        eventually(lambda: addresses_in(states) == [writer.address], "all arrive")
        ended = running.end(signal.SIGTERM)
    assert ended.status == 128 + signal.SIGTERM
    assert "forwarded 50 records" in ended.err


def test_damage_is_reported_once_and_all_other_records_arrive(forward: Forwarding) -> None:
    fill(forward.log, 100)
    first, second, *_ = slabs(forward.log)
    flip(first, first.read_bytes().index(b"7", 8 * 7))
    second.unlink()
    with slabs(forward.log)[-1].open("ab") as file:
        file.write(encode_record(b"torn")[:-1])
    expected = [one.value for one in SlabReader(forward.log) if isinstance(one, SlabRecord)]
    assert 50 < len(expected) < 99
    result = forward("--format", "json")
    assert (result.status, result.objects[0]["gaps"]) == (1, 2), result
    assert "were not forwarded: damaged, the checksum of a record does not match" in result.err
    assert f"were not forwarded: missing, there is no slab before {slabs(forward.log)[1].name}" in result.err
    assert "11 bytes at the end of the last slab are no whole record yet" in result.err
    assert forward.stored == expected
    result = forward("--format", "raw")
    assert (result.status, result.lines) == (0, ["0"])
    fill(forward.log, 100, 101)
    assert (forward().status, forward.stored) == (1, [*expected, value(100)])


def test_without_its_state_everything_is_sent_again(forward: Forwarding, states: Path) -> None:
    """Nothing else shows which records of a topic came from the slabs: they hold no id."""
    fill(forward.log, 10)
    assert forward.count() == 10
    shutil.rmtree(states)
    assert forward.count() == 10
    assert forward.stored == values(10) * 2


def test_older_state_is_corrected_by_the_topic(forward: Forwarding, states: Path) -> None:
    fill(forward.log, 10)
    forward.count()
    (state,) = states.glob("*.forward")
    old = state.read_bytes()
    fill(forward.log, 10, 20)
    assert forward.count() == 10
    state.write_bytes(old)
    fill(forward.log, 20, 30)
    assert forward.count() == 10
    assert forward.stored == values(30)


def test_deleted_topic_gets_only_what_was_not_sent(forward: Forwarding) -> None:
    fill(forward.log, 10)
    forward.count()
    forward.client.delete_topic(forward.topic)
    fill(forward.log, 10, 20)
    result = forward("--format", "raw")
    assert (result.status, result.lines) == (0, ["10"])
    assert "was deleted; what it held is not sent again" in result.err
    assert forward.stored == values(10, 20)


@pytest.mark.parametrize("others", [0, 1, 30])
def test_restored_topic_gets_what_it_has_lost(
    forward: Forwarding, start_broker: StartBroker, tmp_path: Path, others: int
) -> None:
    """As from an older backup, and whatever others have published since."""
    broker = start_broker(directory=tmp_path / "target")
    fill(forward.log, 10)
    assert forward(url=broker.url).status == 0
    broker.end()
    shutil.copytree(tmp_path / "target", tmp_path / "old")
    broker.restart()
    fill(forward.log, 10, 20)
    assert forward(url=broker.url).status == 0
    restore(broker, tmp_path / "old")
    fill(forward.log, 20, 30)
    with connect(broker.url) as client:
        for _ in range(others):
            client.publish(forward.topic, b"other")
        result = forward(url=broker.url)
        assert (result.status, "all of it is looked through" in result.err) == (0, True), result
        assert stored(client, forward.topic) == [*values(10), *[b"other"] * others, *values(10, 30)]
        assert forward.count(url=broker.url) == 0


def test_restored_topic_gets_what_it_has_lost_while_the_forwarding_runs(
    forward: Forwarding, start_broker: StartBroker, tmp_path: Path, states: Path
) -> None:
    broker = start_broker(directory=tmp_path / "target")
    fill(forward.log, 10)
    assert forward(url=broker.url).status == 0
    broker.end()
    shutil.copytree(tmp_path / "target", tmp_path / "old")
    broker.restart()
    with SlabWriter(forward.log) as writer:
        running = forward.command.start("forward", str(forward.log), broker.url)
        write(writer, 10, 20)
        eventually(lambda: addresses_in(states) == [writer.address], "all arrive")
        restore(broker, tmp_path / "old")
        with connect(broker.url) as client:
            client.publish(forward.topic, b"other")
            write(writer, 20, 30)
            eventually(lambda: addresses_in(states) == [writer.address], "all arrive")
            assert stored(client, forward.topic) == [*values(10), b"other", *values(10, 30)]
    assert "all of it is looked through" in running.end(signal.SIGTERM).err


def restore(broker: BrokerProcess, backup: Path) -> None:
    """Restart a broker with an older state of its data."""
    broker.end()
    shutil.rmtree(broker.directory)
    backup.rename(broker.directory)
    broker.restart()


def test_trimmed_topic_gets_only_what_was_not_sent(forward: Forwarding) -> None:
    """The newest forwarded record is gone then, alone or with all of the topic."""
    client, topic = forward.client, forward.topic
    expected = list[bytes]()
    for begin, other in ((0, True), (10, True), (20, False), (30, False)):
        fill(forward.log, begin, begin + 10)
        assert forward.count() == 10
        expected = [*expected, *values(begin, begin + 10)]
        assert stored(client, topic) == expected
        trimmed = client.topic(topic).last
        client.roll(topic)
        expected = [b"other"] if other else []
        if other:
            client.publish(topic, b"other")
        client.trim(topic, before=trimmed + 1)
        assert stored(client, topic) == expected
    assert forward.count() == 0


def test_damage_of_the_newest_forwarded_record_in_the_topic_is_no_loss(
    forward: Forwarding, start_broker: StartBroker, tmp_path: Path
) -> None:
    broker = start_broker(directory=tmp_path / "target")
    fill(forward.log, 10)
    with connect(broker.url) as client:
        client.publish(forward.topic, b"first")
        assert forward.count(url=broker.url) == 10
        client.publish(forward.topic, b"other")
    broker.end()
    (topic,) = (tmp_path / "target" / "topics").glob(f"{forward.topic}~*")
    (segment,) = segments(topic)
    content = segment.read_bytes()
    flip(segment, (content.index(b"first") + content.index(b"other")) // 2)
    broker.restart()
    fill(forward.log, 10, 20)
    result = forward("--format", "raw", url=broker.url)
    assert (result.status, result.lines) == (0, ["10"])
    with connect(broker.url) as client:
        gaps = list[Gap]()
        found = [one for part in client.batches(forward.topic, on_gap=gaps.append) for one in part.values]
        assert (found, [(gap.records, gap.reason) for gap in gaps]) == (
            [b"first", b"other", *values(10, 20)],
            [(10, "damaged")],
        )


def test_wrong_options_and_states_are_refused(forward: Forwarding, tmp_path: Path) -> None:
    fill(forward.log, 10)
    assert "only an embedded log can be trimmed" in forward("--trim").refused(2)[0]
    assert "slabs have no groups" in forward("--group", "g").refused(2)[0]
    assert "writes to the last file" in forward("--state", str(forward.log / "x")).refused(2)[0]
    state = tmp_path / "a.forward"
    state.write_text(
        json.dumps(
            {"version": 1, "url": forward.client.url, "topic": forward.topic, "pointer": 0, "trim": False}
        )
    )
    result = forward("--state", str(state))
    assert (result.status, "does not say how far" in result.err) == (1, True), result
    for path in slabs(forward.log)[1:]:
        path.unlink()


def test_source_that_has_lost_records_is_an_error(forward: Forwarding) -> None:
    """As by a loss of power, of what was not synced; the forwarder syncs what it sends."""
    fill(forward.log, 100)
    forward.count()
    for path in slabs(forward.log)[1:]:
        path.unlink()
    result = forward()
    assert (result.status, "beyond the end of the log" in result.err) == (2, True), result


def test_saved_address_continues_where_the_slab_has_grown_into_a_record_around_it(
    forward: Forwarding,
) -> None:
    """A half-written record whose value holds records is taken for damage, and those are forwarded."""
    outer = encode_record(b"".join(encode_record(value(row)) for row in range(1, 9)))
    forward.log.mkdir()
    slab = forward.log / "00000000000000000000.slab"
    slab.write_bytes(encode_record(value(0)) + encode_record(b"torn")[:9] + outer[:-40])
    assert forward("--format", "json").objects[0]["gaps"] == 1
    before = forward.stored
    assert before == values(len(before))
    with slab.open("ab") as file:
        file.write(outer[-40:] + encode_record(value(9)))
    result = forward()
    assert (result.status, forward.stored) == (0, values(10)), result


def test_too_large_record_is_reported(forward: Forwarding, start_broker: StartBroker) -> None:
    small = start_broker(frame_bytes_max=65_536)
    with SlabWriter(forward.log) as writer:
        for _ in range(50):
            writer.write(b"small" * 1_000)
        writer.write(bytes(200_000))
    result = forward("--timeout", "2", url=small.url)
    assert (result.status, "too_large: a record of 200000 bytes" in result.err) == (1, True), result
    with connect(small.url) as there:
        assert stored(there, forward.topic) == [b"small" * 1_000] * 50


def test_a_batch_whose_answer_was_lost_is_found_in_the_topic_when_the_slab_has_grown(
    forward: Forwarding, broker: BrokerProcess, states: Path
) -> None:
    """The next batch would begin with the same records, under the same sequence, and be another one."""
    with SlabWriter(forward.log) as writer:
        with Wire(broker.url) as wire:
            options = ("--topic", forward.topic, "--state", str(states / "x.forward"))
            running = forward.command.start("forward", str(forward.log), wire.url, *options)
            writer.write(value(0))
            writer.flush()
            eventually(lambda: addresses_in(states) == [writer.address], "the first one is acknowledged")
            wire.lose_answers()
            writer.write(value(1))
            writer.flush()
            eventually(lambda: count_of(forward.client, forward.topic) == 2, "the second one arrives")
            running.end(signal.SIGKILL)
        (state,) = states.glob("*.forward")
        content = json.loads(state.read_text())
        assert content["address"] < writer.address, "it is not known"
        state.write_text(json.dumps({**content, "url": forward.client.url}))
        writer.write(b"grown")
        writer.flush()
        assert forward("--state", str(state)).status == 0
    assert forward.stored == [value(0), value(1), b"grown"]


def test_error_keeps_the_state_of_a_batch_whose_answer_was_lost(
    forward: Forwarding, broker: BrokerProcess, states: Path
) -> None:
    """Nothing but the producer id in it shows what has arrived."""
    fill(forward.log, 1)
    (slab,) = slabs(forward.log)

    def lose(call: Call, _: Answer) -> bool:
        is_batch = call.operation is Operation.PUBLISH
        if is_batch:
            slab.write_bytes(b"")
        return is_batch

    with zmq.Context() as context, Meddler(context, broker.url) as wire:
        wire.on_reply = lose
        result = forward(url=wire.url)
    assert (result.status, "beyond the end of the log" in result.err) == (2, True), result
    assert (forward.stored, addresses_in(states)) == ([value(0)], [9])


@pytest.mark.parametrize("kind", ["slabs", "log"])
def test_empty_directory_stays_empty_until_it_shows_what_it_is(
    forward: Forwarding, states: Path, kind: str
) -> None:
    """A queuefka that begins later opens the last file of its directory, whatever that is."""
    forward.log.mkdir()
    result = forward("--format", "raw")
    assert (result.status, result.lines, [*forward.log.iterdir()]) == (0, ["0"], []), result
    assert forward(url="no-address").status == 2
    assert forward("--topic", "a/b").status == 2
    running = forward.command.start("forward", str(forward.log), forward.client.url)
    assert f"there is no log in {forward.log} yet" in running.error_line()
    assert ([*forward.log.iterdir()], states.exists()) == ([], False)
    if kind == "slabs":
        fill(forward.log, 10)
    else:
        forward.fill(10)
    eventually(lambda: count_of(forward.client, forward.topic) == 10, "all arrive")
    running.end(signal.SIGTERM)
    assert forward.stored == values(10)
    assert forward.count() == 0
    beside = {path.suffix for path in forward.log.iterdir()} & {".forward", ".slab"}
    assert beside == ({".slab"} if kind == "slabs" else {".forward"})


def test_directory_of_something_else_is_refused(forward: Forwarding) -> None:
    forward.log.mkdir()
    (forward.log / "notes").touch()
    result = forward()
    assert (result.status, "it holds 'notes'" in result.err) == (2, True), result
    assert [path.name for path in forward.log.iterdir()] == ["notes"]


def test_state_belongs_to_one_directory(forward: Forwarding, tmp_path: Path, states: Path) -> None:
    fill(forward.log, 10)
    options = ("--topic", forward.topic, "--state", str(states / "x.forward"))
    assert forward.count(*options) == 10
    fill(tmp_path / "other", 20)
    other = Forwarding(forward.command, forward.client, tmp_path / "other")
    result = other(*options)
    assert (result.status, f"belongs to the slabs in {forward.log.resolve()}" in result.err) == (2, True)
    assert "another file by --state" in result.err
    (tmp_path / "link").symlink_to(forward.log)
    assert Forwarding(forward.command, forward.client, tmp_path / "link").count(*options) == 0
    assert forward.stored == values(10)


class SlabDevice(Device):
    """A device whose crashes tear the end of the last slab, as those of queuefka do."""

    def crashed(self) -> None:
        """Leave a part of a record, or garbage."""
        record = encode_record(b"torn" * self._rng.randrange(1, 20))
        torn = self._rng.choice(
            (b"", record[: self._rng.randrange(len(record))], bytes(self._rng.randrange(99)))
        )
        if found := slabs(self._log):
            with found[-1].open("ab") as file:
                file.write(torn)


@pytest.mark.timeout(900)
def test_every_record_of_a_device_arrives_once(
    alone: Command, broker: BrokerProcess, client: Client, topic: str, rng: random.Random, tmp_path: Path
) -> None:
    count = times(FAILURES, 60 * FAILURES)
    goal = count * 400
    directory = tmp_path / "readings"
    with closing(SlabDevice(WRITER, directory, rng, goal)) as device, Wire(broker.url) as wire:
        device.kill()
        failures = Failures(alone, broker, wire, rng, topic, str(directory))

        def kill_at_work() -> None:
            before = count_of(client, topic)
            eventually(lambda: before < count_of(client, topic) or before == goal, "it is at work", 60.0)
            failures.kill_forwarder()

        failures.run(count, device.kill, kill_at_work, kill_at_work)
        device.finish()
        assert failures.end(client, goal) == values(goal)
