"""`quoth forward`: every record of a log arrives once, with options, damage, outages of the broker."""

from __future__ import annotations

import json
import shutil
import signal
import time
from pathlib import Path

import pytest

import quoth as client_package
from kit.broker.brokers import BrokerProcess, StartBroker
from kit.broker.peers import Context
from kit.broker.proxies import Meddler
from kit.client.forwarding import TOPIC, Forward, count_of, fill, mark_of, stored, value
from kit.deadlines import eventually
from kit.disk.damage import with_headers
from kit.disk.logs import segments
from kit.machine.commands import Command
from quoth import Client
from quothlog import Log, LogOptions, Writer
from quothwire.errors import QuothError, error
from quothwire.headers import encode_headers
from quothwire.protocol.binary_codec import Call
from quothwire.protocol.messages import Operation


def test_records_arrive_as_they_are_under_the_name_of_the_directory(
    forward: Forward, client: Client, readings: Path
) -> None:
    with Log.open(readings, options=LogOptions(count_limit=4)) as log:
        for number in range(10):
            log.append([value(number), b""], keys=[b"k", None], headers=[{"n": value(number)}, {}])
        records = [(one.value, one.key, dict(one.headers)) for one in log.read()]
    told = forward("--format", "json")
    assert (told.status, told.objects[0]["records"], told.objects[0]["topic"]) == (0, 20, TOPIC)
    assert [(one.value, one.key, dict(one.headers)) for one in client.read(TOPIC)] == records
    again = forward("--format", "raw")
    assert again.lines == ["0"]
    assert client.topic(TOPIC).count == 20


def test_goes_on_where_it_was_and_takes_what_has_come_since(
    forward: Forward, client: Client, readings: Path
) -> None:
    for begin in range(0, 300, 100):
        fill(readings, range(begin, begin + 100), count_limit=30)
        assert forward("--format", "raw").lines == ["100"]
    assert stored(client) == [value(number) for number in range(300)]


def test_lost_state_is_found_in_the_topic(forward: Forward, client: Client, readings: Path) -> None:
    """Beside records of other producers."""
    fill(readings, range(500))
    forward()
    client.publish(TOPIC, b"of another producer")
    fill(readings, range(500, 600))
    mark_of(readings).unlink()
    assert forward("--format", "raw").lines == ["100"]
    assert stored(client) == [*map(value, range(500)), b"of another producer", *map(value, range(500, 600))]


def test_records_with_wrong_headers_arrive_without_them(
    forward: Forward, client: Client, readings: Path, tmp_path: Path
) -> None:
    """An older log took headers that are no map."""
    replaced, bad = encode_headers({"m": b"0123"}), b"\x81\xa1n\xa5text!"
    with Log.open(readings) as log:
        for number in range(6):
            own = {"m": b"0123"} if number % 3 == 1 else {}
            log.append([value(number), b"x", b""], keys=[b"k", None, b""], headers=[{"n": b"v"}, own, {}])
        (tmp_path / f"log~{log.log_id:016x}").symlink_to(readings)
    with_headers(tmp_path, log.log_id, replaced, bad)
    told = forward("--format", "raw")
    assert (told.status, told.lines) == (0, ["18"])
    assert told.err.count("had headers that cannot be decoded: sent without them") == 2
    found = client.read(TOPIC)
    assert [one.value for one in found] == [one for number in range(6) for one in (value(number), b"x", b"")]
    assert [one.key for one in found] == [b"k", None, b""] * 6
    assert [dict(one.headers) for one in found] == [{"n": b"v"}, {}, {}] * 6
    assert not any(one.raw_headers for one in found)
    assert forward("--format", "raw").lines == ["0"]
    mark_of(readings).unlink()
    assert forward("--format", "raw").lines == ["0"]
    assert client.topic(TOPIC).count == 18, "what went on without its headers is known again"


def test_folder_without_a_log_is_named(forward: Forward, readings: Path) -> None:
    readings.mkdir()
    told = forward("--format", "raw")
    assert (told.status, told.lines) == (0, ["0"])
    assert f"there is no log in {readings} yet" in told.err


def test_follows_a_writer_and_ends_when_it_is_asked_to(
    alone: Command, target: BrokerProcess, client: Client, readings: Path
) -> None:
    with Writer(readings, flush_records=5) as writer:
        running = alone.start("forward", str(readings), target.url, "--topic", "other")
        for number in range(50):
            writer.write(value(number))
        writer.flush()
        eventually(lambda: list(readings.glob("*.forward")), "it is at work")
        eventually(lambda: json.loads(mark_of(readings).read_text())["ordinal"] == 50, "all arrive")
        ended = running.end(signal.SIGTERM)
    assert ended.status == 128 + signal.SIGTERM
    assert "forwarded 50 records" in ended.err
    assert client.topic("other").count == 50


def test_broker_that_has_forgotten_the_producer_is_asked_for_its_records(
    forward: Forward, target: BrokerProcess, client: Client, readings: Path, context: Context
) -> None:
    """Only the topic shows then which records were stored."""
    fill(readings, range(100))
    forward()
    fill(readings, range(100, 200))
    refused: list[Call] = []

    def forget(call: Call) -> QuothError | bool:
        if call.operation is Operation.PUBLISH and len(refused) < 3:
            refused.append(call)
            return error("unknown_producer", "of the test")
        return False

    with Meddler(context, target.url) as meddler:
        meddler.on_request = forget
        mark = mark_of(readings)
        mark.write_text(mark.read_text().replace(target.url, meddler.url))
        told = forward("--state", str(mark), "--format", "raw", url=meddler.url)
    assert (told.status, told.lines) == (0, ["100"])
    assert refused
    assert stored(client) == [value(number) for number in range(200)]


def test_source_that_lost_records_loses_and_doubles_nothing_more(
    forward: Forward, client: Client, readings: Path, tmp_path: Path
) -> None:
    """After a power cut its ordinals are given to other records."""
    fill(readings, range(100))
    shutil.copytree(readings, tmp_path / "before")
    fill(readings, range(100, 200))
    forward()
    mark = mark_of(readings).read_text()
    shutil.rmtree(readings)
    shutil.copytree(tmp_path / "before", readings)
    with Log.open(readings) as log:
        log.append([b"new %d" % number for number in range(30)])
        log.append([b"newer"])
    (readings / "old.forward").write_text(mark)
    told = forward("--state", str(readings / "old.forward"))
    assert told.status == 0
    assert "lost records up to ordinal 200" in told.err
    new = [*(b"new %d" % number for number in range(30)), b"newer"]
    assert stored(client) == [*map(value, range(200)), *new]
    fill(readings, range(131, 140))
    forward("--state", str(readings / "old.forward"))
    assert stored(client)[231:] == [value(number) for number in range(131, 140)]


def test_damage_at_the_source_is_reported_and_the_rest_arrives(
    forward: Forward, client: Client, readings: Path
) -> None:
    fill(readings, range(70), batch=7)
    path = segments(readings)[0]
    data = bytearray(path.read_bytes())
    data[data.index(b"282930")] ^= 1
    path.write_bytes(data)
    told = forward()
    assert told.status == 1
    assert "7 records behind pointer" in told.err
    assert stored(client) == [value(number) for number in range(70) if not 28 <= number < 35]


def test_mistyped_broker_leaves_no_mark(forward: Forward, readings: Path) -> None:
    fill(readings, range(10))
    assert forward(url="no-address").status == 2
    assert list(readings.glob("*.forward")) == []
    assert forward().status == 0
    assert forward("--topic", "a/b").status == 2
    assert len(list(readings.glob("*.forward"))) == 1


def test_trim_removes_forwarded_segments_with_and_without_a_writer(
    forward: Forward, alone: Command, client: Client, readings: Path
) -> None:
    fill(readings, range(100), batch=5, count_limit=20)
    assert len(segments(readings)) == 5
    forward()
    assert len(segments(readings)) == 5
    forward("--trim")
    assert len(segments(readings)) == 1
    with Writer(readings, flush_records=1) as writer:
        assert writer.flush()
        writer.write(value(100))
        assert writer.log.end_ordinal - writer.log.first_ordinal == 1
        forward("--trim")
        writer.flush()
        assert writer.log.end_ordinal == writer.log.first_ordinal
    assert stored(client) == [value(number) for number in range(101)]
    assert alone("log", "verify", str(readings)).status == 0


def test_rate_is_kept(forward: Forward, client: Client, readings: Path) -> None:
    with Log.open(readings) as log:
        for _ in range(20):
            log.append([bytes(5_000)])
    began = time.monotonic()
    assert forward("--rate", "100000").status == 0
    assert time.monotonic() - began >= 0.85
    assert client.topic(TOPIC).count == 20


def test_missing_broker_is_awaited_and_reported_once(
    alone: Command, target: BrokerProcess, client: Client, readings: Path
) -> None:
    fill(readings, range(20))
    target.kill()
    running = alone.start("forward", str(readings), target.url, "--once", "--timeout", "0.2")
    said = running.error_line()
    assert said.startswith("quoth: disconnected: ")
    assert "nothing is lost" in said
    target.restart()
    ended = running.end()
    assert ended.status == 0
    assert stored(client) == [value(number) for number in range(20)]


def test_topic_of_one_broker_goes_to_another(
    alone: Command, target: BrokerProcess, client: Client, start_broker: StartBroker, tmp_path: Path
) -> None:
    """Batches of producers, of simple clients and of the broker's own encoding, under another name."""
    state = {"XDG_STATE_HOME": str(tmp_path / "state")}
    source = start_broker(directory=tmp_path / "source")
    with client_package.connect(source.url) as there:
        with there.producer("orders", batch=9) as producer:
            for number in range(100):
                producer.send(value(number), key=b"k", headers={"h": b"v"})
        there.publish("orders", [value(number) for number in range(100, 120)])
        there.roll("orders")
        there.publish("orders", value(120))
    go = (
        "forward",
        source.url,
        target.url,
        "--from",
        "orders",
        "--topic",
        "copy",
        "--once",
        "--format",
        "raw",
    )
    assert alone(*go, environment=state).lines == ["121"]
    assert alone(*go, environment=state).lines == ["0"]
    found = client.read("copy")
    assert [one.value for one in found] == [value(number) for number in range(121)]
    assert {(one.key, one.headers.get("h")) for one in found} == {(b"k", b"v"), (None, None)}
    assert alone(*go[:-4], "--topic", "copy", "--once", "--trim", environment=state).status == 2


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (["nowhere", "URL"], 3, "nowhere"),
        (["DATA", "URL"], 2, "belongs to a broker"),
        (["URL", "URL"], 2, "--topic"),
        (["LOG", "nonsense"], 2, "nonsense"),
        (["LOG", "URL", "--topic", "a/b"], 2, "bad_topic"),
        (["LOG", "URL", "--from", "x"], 2, "--from"),
        (["LOG", "URL", "--rate", "0"], 2, "--rate"),
    ],
    ids=["no directory", "a broker's directory", "no topic", "no url", "no name", "from", "rate"],
)
def test_mistyped_forward_is_refused(
    alone: Command, target: BrokerProcess, readings: Path, arguments: list[str], status: int, said: str
) -> None:
    fill(readings, range(3))
    words = {"URL": target.url, "LOG": str(readings), "DATA": str(target.directory)}
    told = alone("forward", *(words.get(one, one) for one in arguments), "--once")
    assert told.status == status, told.err
    assert said in told.err


def test_state_belongs_to_one_process_and_one_log(
    forward: Forward, alone: Command, target: BrokerProcess, client: Client, readings: Path
) -> None:
    fill(readings, range(10))
    running = alone.start("forward", str(readings), target.url)
    eventually(lambda: count_of(client) == 10, "it has done what there is")
    told = alone("forward", str(readings), target.url)
    assert (told.status, "locked" in told.err) == (1, True), told.err
    running.end(signal.SIGINT)
    state = mark_of(readings)
    text = state.read_text()
    assert alone("forward", str(readings), target.url, "--topic", "x", "--state", str(state)).status == 2
    for path in segments(readings):
        path.unlink()
    shutil.rmtree(readings)
    fill(readings, range(10))
    state.write_text(text)
    told = forward()
    assert (told.status, "another log" in told.err) == (1, True), told.err
    state.write_text("{}")
    assert forward().status == 1
    assert client.topic(TOPIC).count == 10
