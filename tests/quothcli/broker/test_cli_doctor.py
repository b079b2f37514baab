"""`quoth doctor` checks a real disk, with and without a broker, and leaves nothing behind."""

from __future__ import annotations

import os
import re
import resource
import socket
import time
from pathlib import Path
from typing import Any

import pytest

from kit.broker.brokers import BrokerProcess, StartBroker
from kit.deadlines import DEADLINE_S, eventually
from kit.machine.commands import PATIENT_DOCTOR, Command, Ended
from kit.machine.ports import free_port
from kit.machine.processes import listing, needs_proc
from kit.memory_groups import memory_group, needs_memory_group
from quoth import Disconnected
from quoth import connect as quoth_connect
from quothcli.cli.session import DEFAULT, BrokerAddress
from quothcli.commands.doctor import broker as broker_checks
from quothcli.commands.doctor import directory, limits, probe
from quothd.config.config import Config

DAMAGE = b"half a batch"


def found(told: Ended) -> dict[str, Any]:
    """The findings by the name of their check."""
    return {one["check"]: one for one in told.objects}


def doctor(command: Command, *words: str, **options: Any) -> tuple[int, dict[str, Any]]:
    """Run the doctor; returns its exit status and the findings by the name of their check."""
    result = command.prepared(PATIENT_DOCTOR)("doctor", *words, "--format", "json", **options)
    return result.status, found(result)


def test_broker_and_its_directory_are_checked(quoth: Command, broker: BrokerProcess) -> None:
    assert quoth("pub", "t", "x").status == 0
    result = quoth.prepared(PATIENT_DOCTOR)("doctor", "--format", "json")
    assert result.status == 0, result
    assert sorted(os.listdir(broker.directory)) == ["lock", "topics"]
    findings = found(result)
    assert f"{broker.url} answers in" in findings["broker"]["text"]
    assert f"process {broker.pid}" in findings["broker"]["text"]
    assert findings["announcements"]["text"] == f"{broker.announcements} answers"
    assert str(broker.directory) in findings["owner"]["text"]
    assert findings["lock"]["text"] == f"held by process {broker.pid}"
    assert {"fsync", "room", "file system", "clock", "descriptors", "versions"} <= findings.keys()
    assert findings["client"]["verdict"] == "ok"
    assert findings["its clock"]["verdict"] == findings["its disk"]["verdict"] == "ok"
    assert findings["its alarms"]["verdict"] == "ok"


def test_every_finding_is_a_line_with_an_advice(quoth: Command, tmp_path: Path) -> None:
    patient = quoth.prepared(PATIENT_DOCTOR)
    result = patient("doctor", str(tmp_path))
    objects = patient("doctor", str(tmp_path), "--format", "json").objects
    for line, one in zip(result.lines, objects, strict=True):
        assert re.match(rf"(ok|warn|fail) +{one['check']} ", line), line
    assert all(one["advice"] for one in objects if one["verdict"] != "ok")
    assert "of 100" in next(line for line in result.lines if " fsync " in line)
    assert listing(tmp_path) == []


SILENT: dict[str, list[str]] = {
    # an address: the verdicts about its ports
    "tcp://127.0.0.1:FREE": ["ok", "ok"],
    "tcp://127.0.0.1:99999": ["fail"],
    "tcp://[::1:5": ["fail"],
    "tcp://127.0.0.1:65535": ["ok"],
    "tcp://a..b:5": ["ok", "ok"],
}


def test_missing_broker_is_a_failure_only_if_it_was_named(alone: Command, tmp_path: Path) -> None:
    for address, verdicts in SILENT.items():
        url = address.replace("FREE", str(free_port()))
        result = alone("doctor", str(tmp_path), "--url", url, "--timeout", "0.05", "--format", "json")
        assert (result.status, found(result)["broker"]["verdict"]) == (1, "fail"), address
        assert [one["verdict"] for one in result.objects if one["check"] == "port"] == verdicts, address
        text = found(result)["broker"]["text"]
        assert (url in text, text.endswith("(from --url)")) == (True, True), text
    problem = Disconnected("disconnected", "of the test")
    (first, *_) = broker_checks.silent(BrokerAddress("tcp://a..b:5", None, DEFAULT), problem)
    assert first.verdict == "warn"


def test_program_that_listens_and_does_not_answer_is_reported(
    alone: Command, start_broker: StartBroker, tmp_path: Path
) -> None:
    """Another program, and a broker that hangs."""
    with socket.create_server(("127.0.0.1", free_port())) as listening:
        url = "tcp://{}:{}".format(*listening.getsockname())
        result = alone("doctor", str(tmp_path), "--url", url, "--timeout", "0.1", "--format", "json")
    ports = [one for one in result.objects if one["check"] == "port"]
    assert (result.status, [one["verdict"] for one in ports]) == (1, ["fail", "ok"])
    assert f"{url.removeprefix('tcp://')} and speaks no ZeroMQ" in ports[0]["text"]
    broker = start_broker()
    broker.freeze()
    result = alone("doctor", str(tmp_path), "--url", broker.url, "--timeout", "0.1", "--format", "json")
    ports = [one for one in result.objects if one["check"] == "port"]
    assert (result.status, len(ports), found(result)["broker"]["verdict"]) == (1, 2, "fail")
    assert all("a broker that hangs" in one["advice"] for one in ports if one["verdict"] == "fail")


def test_directory_and_configuration_that_cannot_be_used_are_reported(quoth: Command, tmp_path: Path) -> None:
    secret, file = tmp_path / "secret", tmp_path / "file"
    secret.write_text("of another user")
    file.touch()
    link, pipe, full, wrong, shared = (
        tmp_path / name for name in ("link", "pipe", "full", "wrong", "shared")
    )
    for folder in (link, pipe, full, wrong, shared):
        folder.mkdir()
    (link / "lock").symlink_to(secret)
    os.mkfifo(pipe / "lock")
    shared.chmod(0o777)
    cases: list[tuple[Path, dict[str, str], str, str, str]] = [
        (tmp_path / "a" / "b", {}, "directory", "ok", f"looked at {tmp_path}"),
        (file, {}, "directory", "fail", f"{file}"),
        (link, {}, "lock", "fail", f"{link / 'lock'}"),
        (pipe, {}, "lock", "fail", f"{pipe / 'lock'}"),
        (shared, {}, "owner", "warn", f"{shared}"),
        (full, {"QUOTH_DISK_FREE_MIN": str(2**60)}, "room", "fail", "nothing can be written"),
        (wrong, {"QUOTH_WORKERS_MAX": "many"}, "environment", "fail", "QUOTH_WORKERS_MAX"),
    ]
    for path, environment, check, verdict, text in cases:
        status, findings = doctor(quoth, str(path), environment=environment, seconds=DEADLINE_S)
        assert (status, findings[check]["verdict"]) == (int(verdict == "fail"), verdict), path
        assert text in findings[check]["text"]
        assert "of another user" not in str(findings)
    assert not (tmp_path / "a").exists()


@pytest.mark.skipif(os.getuid() == 0, reason="root may write everywhere")
def test_directory_that_cannot_be_written_is_a_failure(quoth: Command, tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    status, findings = doctor(quoth, str(tmp_path))
    assert [status, findings["owner"]["verdict"], findings["fsync"]["verdict"]] == [1, "fail", "fail"]


@needs_proc
def test_descriptors_are_those_of_the_broker(alone: Command, start_broker: StartBroker) -> None:
    """The command itself may have more."""
    few = (200, 200)
    broker = start_broker(popen={"preexec_fn": lambda: resource.setrlimit(resource.RLIMIT_NOFILE, few)})
    finding = doctor(alone, "--url", broker.url)[1]["descriptors"]
    assert finding["verdict"] == "warn"
    assert f"process {broker.pid} may open 200 files" in finding["text"]
    assert "20 of 256" in finding["text"]
    assert "LimitNOFILE=2560" in finding["advice"]


@needs_proc
def test_a_broker_without_a_limit_of_memory_is_a_warning(alone: Command, start_broker: StartBroker) -> None:
    broker = start_broker()
    limited = limits._group_limit(broker.pid, "memory", ("memory.max", "memory.limit_in_bytes"))
    findings = doctor(alone, "--url", broker.url)[1]
    assert findings["memory"]["verdict"] == ("warn" if limited is None else "ok")
    assert findings["tasks"]["verdict"] == "ok"


@needs_proc
@needs_memory_group
def test_the_memory_of_a_broker_is_that_of_its_control_group(
    alone: Command, start_broker: StartBroker
) -> None:
    with memory_group() as group:
        broker = start_broker(prefix=group.prefix)
        with group.limit(512 * 2**20):
            finding = doctor(alone, "--url", broker.url)[1]["memory"]
        broker.close()
    assert finding["verdict"] == "ok"
    assert f"process {broker.pid} may have 537 MB" in finding["text"]


def test_dead_letters_that_cannot_be_written_are_a_warning(alone: Command, start_broker: StartBroker) -> None:
    """In `doctor` and `status`, until there is room for the topic of the letters."""
    broker = start_broker(topics_max=1, check_interval=0.1)
    with quoth_connect(broker.url) as client, client.group("t", "g", max_attempts=1) as group:
        client.publish("t", b"value")
        assert doctor(alone, "--url", broker.url)[1]["its groups"]["verdict"] == "ok"
        group.fetch(1)[0].term("bad")
        counted = "dead_letters_delayed"
        eventually(
            lambda: client.status().counters[counted] == client.topic("t").counters[counted] == 1, "it is"
        )
        status, findings = doctor(alone, "--url", broker.url)
        assert (status, findings["its groups"]["verdict"]) == (0, "warn")
        assert "the dead letters of 1 group cannot be written" in findings["its groups"]["text"]
        assert "cannot be written; `quoth group ls` tells why" in alone("status", "--url", broker.url).err
        assert "there are 1 topics already" in alone("group", "ls", "--url", broker.url).out.decode()
        client.group("t", "g").update(dead_letter=None)
        eventually(lambda: client.status().counters[counted] == 0, "the record is finished")


def test_torn_bytes_of_the_broker_are_a_warning_and_its_lock_is_free_after_a_kill(
    alone: Command, start_broker: StartBroker
) -> None:
    broker = start_broker()
    pid = broker.pid
    assert alone("pub", "t", "one", "--url", broker.url).status == 0
    broker.kill()
    findings = doctor(alone, str(broker.directory))[1]
    assert findings["lock"]["text"] == f"free; process {pid} had it last"
    (path,) = broker.topics_directory.glob("*/*.seg")
    with path.open("ab") as file:
        file.write(DAMAGE)
    broker.restart()
    assert alone("read", "t", "--url", broker.url).status == 0
    status, findings = doctor(alone, "--url", broker.url)
    assert (status, findings["its disk"]["verdict"]) == (0, "warn")
    assert f"torn_bytes {len(DAMAGE)}" in findings["its disk"]["text"]
    _, said = alone("status", "--url", broker.url).err.splitlines()
    assert f"torn_bytes {len(DAMAGE)}, quarantined_bytes {len(DAMAGE)}; " in said
    assert f"`quoth log verify {broker.directory}`" in said
    assert "quarantined_bytes" in alone("topic", "info", "t", "--url", broker.url).out.decode()


# -- the probe ----------------------------------------------------------------------------------------------


def publish_findings(told: Ended) -> list[dict[str, Any]]:
    """The findings about publishing."""
    return [one for one in told.objects if one["check"] == "publish"]


def test_probes_of_several_doctors_measure_each_step_and_remove_their_topics(
    alone: Command, start_broker: StartBroker
) -> None:
    broker = start_broker(auto_create=False)
    patient = alone.prepared(PATIENT_DOCTOR)
    doctors = [patient.start("doctor", "--url", broker.url, "--format", "json") for _ in range(3)]
    for one in doctors:
        result = one.end()
        (finding,) = publish_findings(result)
        assert (finding["verdict"], result.status) == ("ok", 0)
        spans = re.findall(r"(written|synced|read) in ([\d.]+) ms", finding["text"])
        assert [what for what, _ in spans] == ["written", "synced", "read"]
        assert all(float(span) > 0 for _, span in spans)
    assert listing(broker.topics_directory) == []


def test_broker_that_cannot_store_a_record_is_a_failure_and_one_without_room_for_topics_a_warning(
    alone: Command, start_broker: StartBroker
) -> None:
    """A broker that has started and answers."""
    broker = start_broker(topics_max=1)
    patient = alone.prepared(PATIENT_DOCTOR)
    assert alone("pub", "t", "x", "--url", broker.url).status == 0
    result = patient("doctor", "--url", broker.url, "--format", "json")
    (finding,) = publish_findings(result)
    assert (result.status, finding["verdict"], "topics_max" in finding["text"]) == (0, "warn", True)
    assert alone("topic", "rm", "t", "--yes", "--url", broker.url).status == 0
    topics = broker.topics_directory
    topics.rename(topics.with_name("elsewhere"))
    topics.touch()
    result = patient("doctor", "--url", broker.url, "--format", "json")
    (finding,) = publish_findings(result)
    assert (result.status, finding["verdict"], f"{topics}" in finding["text"]) == (1, "fail", True)
    assert "hidden by a sandbox" in finding["advice"]


def test_topic_of_a_killed_doctor_is_removed_by_a_later_one(
    alone: Command, start_broker: StartBroker
) -> None:
    """With records or without. A young topic stays, and so does one that holds something else."""
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
        client.publish(strange, [probe.VALUE, b"of another program"])
        client.publish(other, probe.VALUE)
        result = alone.prepared(PATIENT_DOCTOR)("doctor", "--url", broker.url, "--format", "json")
        assert sorted(client.topics()) == sorted([young, strange, other])
    findings = publish_findings(result)
    assert [one["verdict"] for one in findings] == ["warn", "ok"]
    assert strange in findings[0]["text"]


@needs_proc
def test_file_system_in_memory_is_a_warning(tmp_path: Path) -> None:
    mount = directory.mount_of(tmp_path.resolve())
    assert mount is not None
    assert tmp_path.resolve().is_relative_to(mount.point)
    memory = Path("/dev/shm")
    if not memory.is_dir() or (directory.mount_of(memory) or mount).kind != "tmpfs":
        pytest.skip("this system has no /dev/shm")
    (finding,) = [one for one in directory.check(memory, Config()) if one.check == "file system"]
    assert finding.verdict == "warn"
    assert "gone at the next boot" in finding.text


def test_slow_disk_gets_fewer_syncs(tmp_path: Path) -> None:
    assert len(directory.sync_times(tmp_path, longest_s=0.0)) == 1
    assert listing(tmp_path) == []
