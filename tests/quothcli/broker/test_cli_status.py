"""`quoth status` and `quoth ping`, also without a broker or with a silent one."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
import zmq

from kit.broker.brokers import BrokerProcess, StartBroker
from kit.broker.peers import Peers, Subscriber
from kit.broker.subscribers import counted
from kit.deadlines import eventually
from kit.disk.damage import truncate
from kit.disk.logs import boundaries
from kit.machine.commands import PATIENT_DOCTOR, Command
from kit.machine.ports import free_port
from quothcli.printing.text import cells_of
from quothd import Broker

Fill = Callable[..., list[int]]


def test_status_prints_a_table_of_topics(quoth: Command, topic: str, fill: Fill, tmp_path: Path) -> None:
    fill(b"one", b"two")
    assert quoth("topic", "set", topic, "--max-age", "7d", "--max-bytes", "10GiB").status == 0
    other = f"{topic}-other"
    assert quoth("topic", "create", other).status == 0
    result = quoth("status", environment={"COLUMNS": "80"})
    assert result.status == 0
    assert result.lines[0].split() == ["TOPIC", "RECORDS", "BYTES", "OLDEST", "NEWEST", "LAG", "KEEPS"]
    rows = {line.split()[0]: line.split()[1:] for line in result.lines[1:]}
    records, _size, _unit, oldest, newest, lag, *keeps = rows[topic]
    assert (records, lag, keeps) == ("2", "-", ["7d", "10GiB"])
    assert all(re.fullmatch(r"[\d.]+(ms|s|m)\S*", age) for age in (oldest, newest))
    assert (rows[other][0], rows[other][3:]) == ("0", ["-", "-", "-", "all"])
    assert "topics" in result.err
    assert len(result.err.splitlines()) == 1
    result = quoth("status", "--rows", "1")
    assert len(result.lines) == 2
    assert "more topics; --rows" in result.err
    cursor = tmp_path / "cursor"
    assert quoth("read", topic, "--limit", "1", "--cursor", str(cursor)).status == 0
    rows = {line.split()[0]: line.split() for line in quoth("status", "--cursor", str(cursor)).lines}
    assert rows[topic][6] == "1"


def test_status_reports_lost_records(start_broker: StartBroker, alone: Command) -> None:
    broker = start_broker()
    for value in ("one", "two", "three"):
        assert alone("pub", "t", value, "--url", broker.url).status == 0
    assert broker.terminate() == 0
    (path,) = broker.topics_directory.glob("*/*.seg")
    truncate(path, boundaries(path, int(path.parent.name[-16:], 16))[1])
    broker.restart()
    assert alone("read", "t", "--format", "raw", "--url", broker.url).out == b"one\n"
    _, said = alone("status", "--url", broker.url).err.splitlines()
    assert "something was damaged: lost_records 2; " in said


def test_status_as_json_is_complete(
    quoth: Command, broker: BrokerProcess, topic: str, fill: Fill, tmp_path: Path
) -> None:
    pointers = fill(b"one", b"two", b"three")
    cursor = str(tmp_path / "cursor")
    assert quoth("read", topic, "--limit", "1", "--cursor", cursor).status == 0
    (found,) = quoth("status", "--format", "json").objects
    assert (found["pid"], found["directory"]) == (broker.pid, str(broker.directory))
    assert len(found["states"][topic]) == 1
    assert found["topics"] == len(found["states"]) == len(found["rows"])
    rows = {row["name"]: row for row in found["rows"]}
    row = rows[topic]
    assert (row["count"], row["last"], row["lag"], row["lag_seconds"]) == (3, pointers[-1], None, None)
    (found,) = quoth("status", "--format", "json", "--cursor", cursor).objects
    (row,) = [row for row in found["rows"] if row["name"] == topic]
    assert (row["lag"], row["lag_seconds"]) == (2, (pointers[-1] - pointers[0]) / 1e6)
    (found,) = quoth("status", "--format", "json", "--rows", "0").objects
    assert found["rows"] == []
    happened, _ = quoth("status", "--format", "raw", "--cursor", cursor).refused(2)
    assert "--cursor: raw prints names only: use text or json" in happened


def test_columns_of_status_stand_below_each_other_beside_wide_names(quoth: Command) -> None:
    names = ["orders", "\u6ce8\u6587", "\u0e01\u0e31\u0e19"]
    for name in names:
        assert quoth("pub", name, "one").status == 0
    result = quoth("status")
    rows = {line.split()[0]: line for line in result.lines[1:]}
    ends = {name: cells_of(rows[name][: rows[name].index(" 1 ") + 2]) for name in names}
    assert set(ends.values()) == {result.lines[0].index("RECORDS") + len("RECORDS")}, result.lines


def test_ping_measures_a_round_trip(quoth: Command) -> None:
    assert f"{quoth.url} answers in " in quoth("ping").out.decode()
    (found,) = quoth("ping", "--format", "json").objects
    assert found["url"] == quoth.url
    assert 0 < found["seconds"] < 20
    assert 0 < float(quoth("ping", "--format", "raw").out) < 20
    elsewhere = "tcp://127.0.0.1:1"
    typed = ("--url", elsewhere, "ping", "--url", quoth.url)
    assert quoth(*typed, environment={"QUOTH_URL": elsewhere}).status == 0, "what stands last wins"


def test_silent_broker_times_out(alone: Command, context: zmq.Context[zmq.Socket[bytes]]) -> None:
    with context.socket(zmq.ROUTER) as silent:
        silent.bind(url := f"tcp://127.0.0.1:{free_port()}")
        result = alone("status", "--url", url, "--timeout", "0.5")
        silent.close(linger=0)
    assert (result.status, result.out) == (4, b"")
    # a busy machine may need longer to connect
    assert result.err.startswith(("quoth: timed_out: ", "quoth: disconnected: "))


def test_a_broker_that_announces_nothing_any_more_is_named_by_status_and_doctor(
    alone: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, peers: Peers
) -> None:
    def fail(_self: object, _message: object) -> None:
        raise MemoryError("no memory for a subscription")

    monkeypatch.setattr("quothd.announcing.subscribers.Subscribers._take", fail)
    with Broker(tmp_path / "data", host="127.0.0.1") as broker:
        url = broker.urls[0]
        host, _, port = url.rpartition(":")
        fast = peers.fast(url)
        assert "announcements has failed" not in alone("status", "--url", url).err
        peers.keep(Subscriber(peers.context, f"{host}:{int(port) + 1}", b""))
        eventually(lambda: counted(fast, "announcer_running") == 0, "the thread has ended")
        assert "the thread of the announcements has failed" in alone("status", "--url", url).err
        result = alone.prepared(PATIENT_DOCTOR)("doctor", "--url", url, "--format", "json")
        finding = next(one for one in result.objects if one["check"] == "announcements")
        assert (result.status, finding["verdict"]) == (1, "fail")
