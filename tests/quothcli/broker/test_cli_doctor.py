"""`quoth doctor`: what it finds on a real disk, with and without a broker, and that it leaves no trace."""

from __future__ import annotations

import os
import re
import resource
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kit.broker.brokers import BrokerProcess, StartBroker, free_port
from kit.deadlines import DEADLINE_S
from kit.machine.commands import Command, Ended, Running
from kit.machine.processes import listing, needs_proc
from quoth import Disconnected
from quoth import connect as quoth_connect
from quothcli.cli.session import Session
from quothcli.commands.doctor import broker as broker_checks
from quothcli.commands.doctor import directory, machine, probe
from quothd.config.config import Config
from quothlog.storage.clock import _system_boot_id

DAMAGE = b"half a batch"
PATIENT = "from quothcli.commands.doctor import broker; broker.ANSWER_S = 20.0"
"""A busy machine may need longer to greet at a port than a person waits for that."""


def found(told: Ended) -> dict[str, Any]:
    """The findings by the name of their check."""
    return {one["check"]: one for one in told.objects}


def verdicts(told: Ended) -> dict[str, str]:
    """The verdicts by the name of their check."""
    return {check: one["verdict"] for check, one in found(told).items()}


def test_a_broker_and_its_directory(quoth: Command, broker: BrokerProcess) -> None:
    assert quoth("pub", "t", "x").status == 0
    told = quoth.prepared(PATIENT)("doctor", "--format", "json")
    assert told.status == 0, told
    assert sorted(os.listdir(broker.directory)) == ["lock", "topics"]
    findings = found(told)
    assert f"{broker.url} answers in" in findings["broker"]["text"]
    assert f"process {broker.pid}" in findings["broker"]["text"]
    assert findings["announcements"]["text"] == f"{broker.announcements} answers"
    assert str(broker.directory) in findings["owner"]["text"]
    assert findings["lock"]["text"] == f"held by process {broker.pid}"
    assert {"fsync", "room", "file system", "clock", "descriptors", "memory", "versions"} <= findings.keys()
    assert findings["client"]["verdict"] == "ok"
    assert findings["its clock"]["verdict"] == findings["its disk"]["verdict"] == "ok"


def test_every_finding_is_a_line_and_says_what_to_do(quoth: Command, tmp_path: Path) -> None:
    told = quoth("doctor", str(tmp_path))
    objects = quoth("doctor", str(tmp_path), "--format", "json").objects
    for line, one in zip(told.lines, objects, strict=True):
        assert re.match(rf"(ok|warn|fail) +{one['check']} ", line), line
    assert all(one["advice"] for one in objects if one["verdict"] != "ok")
    assert "of 100" in next(line for line in told.lines if " fsync " in line)
    assert listing(tmp_path) == []


def test_no_broker_is_a_failure_only_if_one_was_named(
    alone: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"tcp://127.0.0.1:{free_port()}"
    named = alone("doctor", str(tmp_path), "--url", url, "--timeout", "0.1", "--format", "json")
    assert (named.status, verdicts(named)["broker"]) == (1, "fail")
    text = found(named)["broker"]["text"]
    assert url in text
    assert text.endswith("(from --url)")
    monkeypatch.setattr("quothcli.cli.session.DEFAULT_URL", url)
    with pytest.raises(Disconnected) as problem, Session(timeout=0.05).connect():
        pass
    (first, *ports) = broker_checks.silent(Session().broker, problem.value)
    assert first.verdict == "warn"
    assert [one.verdict for one in ports] == ["ok", "ok"]


@pytest.fixture
def stranger() -> Iterator[int]:
    """A port at which somebody else listens."""
    with socket.create_server(("127.0.0.1", free_port())) as listening:
        yield listening.getsockname()[1]


def test_somebody_else_at_the_port(alone: Command, tmp_path: Path, stranger: int) -> None:
    url = f"tcp://127.0.0.1:{stranger}"
    told = alone("doctor", str(tmp_path), "--url", url, "--timeout", "0.1", "--format", "json")
    assert told.status == 1
    ports = [one for one in told.objects if one["check"] == "port"]
    assert [one["verdict"] for one in ports] == ["fail", "ok"]
    assert f"127.0.0.1:{stranger} and speaks no ZeroMQ" in ports[0]["text"]


@pytest.mark.parametrize(
    ("url", "verdicts_of_ports"),
    [
        ("tcp://127.0.0.1:99999", ["fail"]),
        ("tcp://[::1:5", ["fail"]),
        ("tcp://127.0.0.1:65535", ["ok"]),
        ("tcp://a..b:5", ["ok", "ok"]),
    ],
)
def test_an_address_that_can_be_none(
    alone: Command, tmp_path: Path, url: str, verdicts_of_ports: list[str]
) -> None:
    told = alone("doctor", str(tmp_path), "--url", url, "--timeout", "0.05", "--format", "json")
    assert (told.status, verdicts(told)["broker"]) == (1, "fail")
    assert [one["verdict"] for one in told.objects if one["check"] == "port"] == verdicts_of_ports


def test_a_broker_that_hangs(alone: Command, start_broker: StartBroker, tmp_path: Path) -> None:
    broker = start_broker()
    broker.freeze()
    url = broker.url
    told = alone("doctor", str(tmp_path), "--url", url, "--timeout", "0.1", "--format", "json")
    assert (told.status, verdicts(told)["broker"]) == (1, "fail")
    ports = [one for one in told.objects if one["check"] == "port"]
    assert all("a broker that hangs" in one["advice"] for one in ports if one["verdict"] == "fail")
    assert len(ports) == 2


def test_a_directory_that_does_not_exist_yet(quoth: Command, tmp_path: Path) -> None:
    told = quoth("doctor", str(tmp_path / "a" / "b"), "--format", "json")
    assert told.status == 0, told
    assert f"looked at {tmp_path}" in found(told)["directory"]["text"]
    assert listing(tmp_path) == []


def test_a_file_where_the_directory_should_be(quoth: Command, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    told = quoth("doctor", str(tmp_path / "file"), "--format", "json")
    assert (told.status, verdicts(told)["directory"]) == (1, "fail")


@pytest.mark.parametrize("kind", ["link", "pipe"])
def test_a_lock_that_is_no_file_is_neither_read_nor_waited_for(
    quoth: Command, tmp_path: Path, kind: str
) -> None:
    data, secret = tmp_path / "data", tmp_path / "secret"
    data.mkdir()
    secret.write_text("of another user")
    (data / "lock").symlink_to(secret) if kind == "link" else os.mkfifo(data / "lock")
    told = quoth("doctor", str(data), "--format", "json", seconds=DEADLINE_S)
    assert (told.status, verdicts(told)["lock"]) == (1, "fail")
    assert str(data / "lock") in found(told)["lock"]["text"]
    assert b"of another user" not in told.out


def test_a_directory_that_others_may_write(quoth: Command, tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    assert verdicts(quoth("doctor", str(tmp_path), "--format", "json"))["owner"] == "warn"


@pytest.mark.skipif(os.getuid() == 0, reason="root may write everywhere")
def test_a_directory_that_cannot_be_written(quoth: Command, tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    told = quoth("doctor", str(tmp_path), "--format", "json")
    assert told.status == 1
    assert (verdicts(told)["owner"], verdicts(told)["fsync"]) == ("fail", "fail")


def test_a_disk_without_room(quoth: Command, tmp_path: Path) -> None:
    environment = {"QUOTH_DISK_FREE_MIN": str(2**60)}
    told = quoth("doctor", str(tmp_path), "--format", "json", environment=environment)
    assert (told.status, verdicts(told)["room"]) == (1, "fail")


def test_a_wrong_environment(quoth: Command, tmp_path: Path) -> None:
    environment = {"QUOTH_WORKERS_MAX": "many"}
    told = quoth("doctor", str(tmp_path), "--format", "json", environment=environment)
    assert (told.status, verdicts(told)["environment"]) == (1, "fail")
    assert "QUOTH_WORKERS_MAX" in found(told)["environment"]["text"]


def test_a_machine_that_hides_its_boot(
    alone: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("quothlog.storage.clock._LINUX_BOOT_ID", tmp_path / "boot_id")
    _system_boot_id.cache_clear()
    try:
        (finding,) = machine.boot()
    finally:
        _system_boot_id.cache_clear()
    assert finding.verdict == "fail"
    assert f"{tmp_path}/boot_id" in finding.text
    assert verdicts(alone("doctor", str(tmp_path), "--format", "json"))["boot"] == "ok"


@needs_proc
def test_the_descriptors_of_the_broker_that_runs(alone: Command, start_broker: StartBroker) -> None:
    """Not those of whoever asks, who may have been given more."""
    few = (200, 200)
    broker = start_broker(popen={"preexec_fn": lambda: resource.setrlimit(resource.RLIMIT_NOFILE, few)})
    told = alone("doctor", "--url", broker.url, "--format", "json")
    finding = found(told)["descriptors"]
    assert finding["verdict"] == "warn"
    assert f"process {broker.pid} may open 200 files" in finding["text"]
    assert "--workers-max 33" in finding["advice"]


def test_what_the_broker_has_met(alone: Command, start_broker: StartBroker) -> None:
    broker = start_broker()
    assert alone("pub", "t", "one", "--url", broker.url).status == 0
    broker.kill()
    (path,) = broker.topics_directory.glob("*/*.seg")
    with path.open("ab") as file:
        file.write(DAMAGE)
    broker.restart()
    assert alone("read", "t", "--url", broker.url).status == 0
    told = alone("doctor", "--url", broker.url, "--format", "json")
    finding = found(told)["its disk"]
    assert (finding["verdict"], told.status) == ("warn", 0)
    assert f"torn_bytes {len(DAMAGE)}" in finding["text"]


def test_a_lock_that_nobody_holds_any_more(quoth: Command, start_broker: StartBroker) -> None:
    broker = start_broker()
    pid = broker.pid
    broker.kill()
    told = quoth("doctor", str(broker.directory), "--format", "json")
    assert found(told)["lock"]["text"] == f"free; process {pid} had it last"


# -- the probe ----------------------------------------------------------------------------------------------


def publish_findings(told: Ended) -> list[dict[str, Any]]:
    """What is said of publishing."""
    return [one for one in told.objects if one["check"] == "publish"]


def test_a_record_goes_there_and_back_and_leaves_no_trace(alone: Command, start_broker: StartBroker) -> None:
    broker = start_broker(auto_create=False)
    told = alone("doctor", "--url", broker.url, "--format", "json")
    (finding,) = publish_findings(told)
    assert (finding["verdict"], told.status) == ("ok", 0)
    spans = re.findall(r"(written|synced|read) in ([\d.]+) ms", finding["text"])
    assert [what for what, _ in spans] == ["written", "synced", "read"]
    assert all(float(span) > 0 for _, span in spans)
    assert listing(broker.topics_directory) == []


def test_a_broker_that_cannot_store_a_record_is_found(alone: Command, start_broker: StartBroker) -> None:
    """Though it started well, answers and has nothing to complain of."""
    broker = start_broker()
    topics = broker.topics_directory
    topics.rename(topics.with_name("elsewhere"))
    topics.touch()
    told = alone("doctor", "--url", broker.url, "--format", "json")
    (finding,) = publish_findings(told)
    assert (finding["verdict"], told.status) == ("fail", 1)
    assert f"{topics}" in finding["text"], "it names the path"
    assert "hidden by a sandbox" in finding["advice"]


def test_a_broker_that_takes_no_more_topics_is_a_warning(alone: Command, start_broker: StartBroker) -> None:
    broker = start_broker(topics_max=1)
    assert alone("pub", "t", "x", "--url", broker.url).status == 0
    told = alone("doctor", "--url", broker.url, "--format", "json")
    (finding,) = publish_findings(told)
    assert (finding["verdict"], told.status) == ("warn", 0)
    assert "topics_max" in finding["text"]


def test_what_a_doctor_that_was_killed_has_left_is_removed_by_a_later_one(
    alone: Command, start_broker: StartBroker
) -> None:
    """With records in it or without; what a doctor may still be at stays, and what is not a doctor's."""
    broker = start_broker()
    now = time.time_ns() // 1_000
    old = now - int(probe.LEFT_AFTER_S * 1e6) - 1
    leftover, unused, young, strange, other = (
        f"{probe.PREFIX}{made}-{row:016x}" for row, made in enumerate((old, old, now, old, "x"))
    )
    with quoth_connect(broker.url) as client:
        client.publish(leftover, probe.VALUE)
        client.create_topic(unused)
        client.publish(young, probe.VALUE)
        client.publish(strange, [probe.VALUE, b"of somebody else"])
        client.publish(other, probe.VALUE)
        told = alone("doctor", "--url", broker.url, "--format", "json")
        assert sorted(client.topics()) == sorted([young, strange, other])
    findings = publish_findings(told)
    assert [one["verdict"] for one in findings] == ["warn", "ok"]
    assert strange in findings[0]["text"]


def test_several_doctors_do_not_disturb_each_other(
    alone: Command, running: list[Running], start_broker: StartBroker
) -> None:
    broker = start_broker()
    doctors = [alone.start("doctor", "--url", broker.url, "--format", "json") for _ in range(3)]
    for doctor in doctors:
        (finding,) = publish_findings(doctor.end())
        assert finding["verdict"] == "ok"
    assert listing(broker.topics_directory) == []


@needs_proc
def test_kinds_of_file_systems(tmp_path: Path) -> None:
    mount = directory.mount_of(tmp_path.resolve())
    assert mount is not None
    assert tmp_path.resolve().is_relative_to(mount.point)
    memory = Path("/dev/shm")
    if not memory.is_dir() or (directory.mount_of(memory) or mount).kind != "tmpfs":
        pytest.skip("this system has no /dev/shm")
    (finding,) = [one for one in directory.check(memory, Config()) if one.check == "file system"]
    assert finding.verdict == "warn"
    assert "gone at the next boot" in finding.text


def test_a_slow_disk_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(directory, "SYNCS_S", 0.0)
    assert len(directory.sync_times(tmp_path)) == 1
    assert listing(tmp_path) == []
