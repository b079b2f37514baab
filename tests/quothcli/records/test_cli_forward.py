"""`quoth forward`: every record of a log arrives once, also while processes and connections die."""

from __future__ import annotations

import json
import random
import shutil
import signal
import time
from contextlib import closing
from pathlib import Path

import pytest

from kit.broker.brokers import BrokerProcess, StartBroker
from kit.broker.proxies import Wire
from kit.client.forwarding import Forwarding, count_of, value, values
from kit.client.forwarding_failures import Device, Failures
from kit.deadlines import eventually
from kit.disk.damage import flip, with_headers
from kit.disk.logs import segments
from kit.machine.commands import Command
from kit.scale import times
from quoth import Client, connect
from quoth.forward.window import BURST_S
from quothlog import Log, LogOptions, Writer
from quothwire.headers import encode_headers


def test_records_arrive_as_they_are_under_the_name_of_the_directory(forward: Forwarding) -> None:
    with Log.open(forward.log, options=LogOptions(count_limit=4)) as log:
        for number in range(10):
            log.append([value(number), b""], keys=[b"k", None], headers=[{"n": value(number)}, {}])
        records = [(one.value, one.key, dict(one.headers)) for one in log.read()]
    result = forward("--format", "json")
    assert (result.status, result.objects[0]["records"], result.objects[0]["topic"]) == (0, 20, forward.topic)
    found = forward.client.read(forward.topic)
    assert [(one.value, one.key, dict(one.headers)) for one in found] == records


def test_forwarding_continues_at_its_mark_and_sends_new_records(forward: Forwarding) -> None:
    for begin in range(0, 300, 100):
        forward.fill(begin, begin + 100, count_limit=30)
        assert forward.count() == 100
    assert forward.count() == 0
    assert forward.stored == values(300)


def test_records_with_wrong_headers_arrive_without_them(forward: Forwarding, tmp_path: Path) -> None:
    """An older log took headers that are no map."""
    replaced, bad = encode_headers({"m": b"0123"}), b"\x81\xa1n\xa5text!"
    with Log.open(forward.log) as log:
        for number in range(6):
            own = {"m": b"0123"} if number % 3 == 1 else {}
            log.append([value(number), b"x", b""], keys=[b"k", None, b""], headers=[{"n": b"v"}, own, {}])
        (tmp_path / f"log~{log.log_id:016x}").symlink_to(forward.log)
    with_headers(tmp_path, log.log_id, replaced, bad)
    result = forward("--format", "raw")
    assert (result.status, result.lines) == (0, ["18"])
    assert result.err.count("had headers that cannot be decoded: sent without them") == 2
    found = forward.client.read(forward.topic)
    assert [(one.value, one.key) for one in found] == [
        pair for number in range(6) for pair in ((value(number), b"k"), (b"x", None), (b"", b""))
    ]
    assert [dict(one.headers) for one in found] == [{"n": b"v"}, {}, {}] * 6
    assert not any(one.raw_headers for one in found)
    forward.mark.unlink()
    assert forward("--format", "raw").lines == ["0"], "what went on without its headers is known again"


def test_folder_without_a_log_is_named(forward: Forwarding) -> None:
    forward.log.mkdir()
    result = forward("--format", "raw")
    assert (result.status, result.lines) == (0, ["0"])
    assert f"there is no log in {forward.log} yet" in result.err


def test_follows_a_writer_and_ends_when_it_is_asked_to(forward: Forwarding) -> None:
    client, name = forward.client, f"{forward.topic}-other"
    with Writer(forward.log, flush_records=5) as writer:
        running = forward.command.start("forward", str(forward.log), client.url, "--topic", name)
        for number in range(50):
            writer.write(value(number))
        writer.flush()
        eventually(lambda: list(forward.log.glob("*.forward")), "it is at work")
        eventually(lambda: json.loads(forward.mark.read_text())["ordinal"] == 50, "all arrive")
        ended = running.end(signal.SIGTERM)
    assert ended.status == 128 + signal.SIGTERM
    assert "forwarded 50 records" in ended.err
    assert client.topic(name).count == 50


def test_damage_at_the_source_is_reported_and_intact_records_arrive(forward: Forwarding) -> None:
    forward.fill(70, batch=7)
    (path,) = segments(forward.log)
    flip(path, path.read_bytes().index(b"282930"))
    result = forward()
    assert result.status == 1
    assert "7 records behind pointer" in result.err
    assert forward.stored == [*values(28), *values(35, 70)]


def test_mistyped_broker_leaves_no_mark(forward: Forwarding) -> None:
    forward.fill(10)
    assert forward(url="no-address").status == 2
    assert list(forward.log.glob("*.forward")) == []
    assert forward().status == 0
    assert forward("--topic", "a/b").status == 2
    assert forward.mark.exists()


def test_trim_removes_forwarded_segments_with_and_without_a_writer(forward: Forwarding) -> None:
    forward.fill(100, count_limit=20)
    forward()
    assert len(segments(forward.log)) == 5
    forward("--trim")
    assert len(segments(forward.log)) == 1
    with Writer(forward.log, flush_records=1) as writer:
        assert writer.flush()
        writer.write(value(100))
        assert writer.log.end_ordinal - writer.log.first_ordinal == 1
        forward("--trim")
        writer.flush()
        assert writer.log.end_ordinal == writer.log.first_ordinal
    assert forward.stored == values(101)
    assert forward.command("log", "verify", str(forward.log)).status == 0


def test_second_forwarding_waits_for_its_broker_and_prevents_trimming_from_its_start_on(
    forward: Forwarding, start_broker: StartBroker, tmp_path: Path
) -> None:
    forward.fill(40, count_limit=10)
    away = start_broker(directory=tmp_path / "away")
    away.kill()
    running = forward.command.start("forward", str(forward.log), away.url, "--once", "--timeout", "0.2")
    said = running.error_line()
    assert said.startswith("quoth: disconnected: ")
    assert "nothing is lost" in said
    forward("--trim")
    away.restart()
    assert running.end().status == 0
    with connect(away.url) as there:
        assert [one.value for one in there.read(forward.topic)] == values(40)


def test_rate_is_kept(forward: Forwarding) -> None:
    """The first batches may be sent at once, as many as the rate allows within `BURST_S`."""
    with Log.open(forward.log) as log:
        for _ in range(10):
            log.append([bytes(5_000)])
    began = time.monotonic()
    assert forward("--rate", "100000").status == 0
    assert time.monotonic() - began >= 9 * 0.05 - BURST_S
    assert forward.client.topic(forward.topic).count == 10


def test_topic_of_one_broker_goes_to_another(
    alone: Command, broker: BrokerProcess, client: Client, start_broker: StartBroker, tmp_path: Path
) -> None:
    """Batches of producers, of simple clients and of the broker's own encoding, under another name."""
    state = {"XDG_STATE_HOME": str(tmp_path / "state")}
    source = start_broker(directory=tmp_path / "source")
    with connect(source.url) as there:
        with there.producer("orders", batch=9) as producer:
            for number in range(100):
                producer.send(value(number), key=b"k", headers={"h": b"v"})
        there.publish("orders", values(100, 120))
        there.roll("orders")
        there.publish("orders", value(120))
    typed = ("forward", source.url, broker.url, "--from", "orders", "--topic", "copy", "--once")
    assert alone(*typed, "--format", "raw", environment=state).lines == ["121"]
    assert alone(*typed, "--format", "raw", environment=state).lines == ["0"]
    found = client.read("copy")
    assert [one.value for one in found] == values(121)
    assert {(one.key, one.headers.get("h")) for one in found} == {(b"k", b"v"), (None, None)}
    assert alone(*typed, "--trim", environment=state).status == 2


def test_progress_shows_as_a_named_cursor_at_the_source(
    alone: Command, client: Client, start_broker: StartBroker, topic: str, tmp_path: Path
) -> None:
    state = {"XDG_STATE_HOME": str(tmp_path / "state")}
    target = start_broker(directory=tmp_path / "target")
    client.publish(topic, values(20))
    typed = ("forward", client.url, target.url, "--topic", topic, "--group", "copy")
    cursor = client.cursor(topic, "copy", create=False)
    assert alone(*typed, "--once", environment=state).status == 0
    assert (cursor.pointer(), cursor.lag().records) == (client.topic(topic).last, 0)
    running = alone.start(*typed, environment=state)
    client.publish(topic, values(20, 30))
    eventually(lambda: cursor.lag().records == 0, "it goes on")
    cursor.delete()
    client.publish(topic, values(30, 40))
    eventually(lambda: [one.group for one in client.groups(topic)] == ["copy"], "it is made again")
    running.end(signal.SIGTERM)
    client.group(topic, "billing").info()
    result = alone(*typed[:-1], "billing", "--once", environment=state)
    assert (result.status, "group_exists" in result.err) == (1, True), result


MISTYPED: dict[str, tuple[int, str]] = {
    "nowhere URL": (3, "nowhere"),
    "DATA URL": (2, "belongs to a broker"),
    "URL URL": (2, "--topic"),
    "URL URL --topic TOPIC --state LOG/x.forward": (2, "bad_request"),  # to itself
    "LOG nonsense": (2, "nonsense"),
    "LOG URL --topic a/b": (2, "bad_topic"),
    "LOG URL --from x": (2, "--from"),
    "LOG URL --group x": (2, "--group"),
    "LOG URL --rate 0": (2, "--rate"),
    "LOG URL --trim --state DATA/a.forward": (2, "NAME.forward"),
    "LOG URL --trim --state LOG/a.state": (2, "NAME.forward"),
}


def test_mistyped_forward_is_refused(forward: Forwarding, broker: BrokerProcess) -> None:
    forward.fill(3)
    forward.client.publish(forward.topic, b"stays")
    names = {"URL": broker.url, "LOG": forward.log, "DATA": broker.directory, "TOPIC": forward.topic}
    for typed, (status, said) in MISTYPED.items():
        line = typed
        for name, meant in names.items():
            line = line.replace(name, str(meant))
        result = forward.command("forward", *line.split(), "--once")
        assert (result.status, said in result.err) == (status, True), (typed, result)
    assert forward.stored == [b"stays"]


def test_state_belongs_to_one_process_and_one_log(forward: Forwarding) -> None:
    forward.fill(10)
    client, typed = forward.client, ("forward", str(forward.log), forward.client.url)
    running = forward.command.start(*typed)
    eventually(lambda: count_of(client, forward.topic) == 10, "it has done what there is")
    result = forward()
    assert (result.status, "locked" in result.err) == (1, True), result
    running.end(signal.SIGINT)
    state = forward.mark
    text = state.read_text()
    assert forward("--topic", "x", "--state", str(state)).status == 2
    shutil.rmtree(forward.log)
    forward.fill(10)
    state.write_text(text)
    result = forward()
    assert (result.status, "another log" in result.err) == (1, True), result
    state.write_text("{}")
    assert forward().status == 1
    assert client.topic(forward.topic).count == 10


def test_too_large_batch_is_reported(forward: Forwarding, start_broker: StartBroker, tmp_path: Path) -> None:
    small = start_broker(directory=tmp_path / "small", frame_bytes_max=70_000)
    with Log.open(forward.log) as log:
        log.append([b"small"])
        log.append([bytes(200_000)])
    result = forward("--timeout", "2", url=small.url)
    assert (result.status, "too_large: a batch of 200072 bytes" in result.err) == (1, True), result
    with connect(small.url) as there:
        assert [one.value for one in there.read(forward.topic)] == [b"small"]


# -- kills ----------------------------------------------------------------------------------------


FAILURES = 8

WRITER = """
import random, sys, time
from quothlog import LogOptions, Writer
rng = random.Random(int(sys.argv[2]))
options = LogOptions(count_limit=200)
with Writer(sys.argv[1], flush_records=20, flush_seconds=0.01, options=options) as writer:
    number = writer.log.end_ordinal
    print("ready", flush=True)
    while number < int(sys.argv[3]):
        writer.write(b"%d" % number)
        number += 1
        if rng.random() < 0.02:
            time.sleep(0.005)
    writer.flush()
    print("done", flush=True)
"""
"""Writes the ordinal of each record as its value, and goes on where the log ends."""


@pytest.mark.timeout(900)
def test_every_record_of_a_device_arrives_once(
    alone: Command, broker: BrokerProcess, client: Client, topic: str, rng: random.Random, tmp_path: Path
) -> None:
    count = times(FAILURES, 60 * FAILURES)
    goal = count * 400
    log = tmp_path / "readings"
    with closing(Device(WRITER, log, rng, goal)) as device, Wire(broker.url) as wire:
        failures = Failures(alone, broker, wire, rng, topic, str(log), "--trim")
        failures.run(count, device.kill)
        device.finish()
        assert failures.end(client, goal) == values(goal)
    left = sum(path.stat().st_size for path in segments(log))
    assert left < 64_000, "the writer has removed forwarded segments"
