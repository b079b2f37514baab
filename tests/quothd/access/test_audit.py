"""The audit: who changed what, and what was denied, in a file of its own."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kit.broker.peers import Peers, refused
from kit.clocks import SECOND, ManualClock
from kit.deadlines import DEADLINE_S, eventually
from kit.disk.logs import encoded
from kit.keys import DENIED, handshake
from quothd.access.audit import LEFT_OUT, OK, RECORDS_MAX, WINDOW_S, AuditRecord, AuditThrottle
from quothd.service.audit_log import FILES, AuditLog
from quothlog.storage.clock import SystemClock
from quothwire.protocol.group_messages import OpenGroup
from quothwire.protocol.messages import CreateTopic, DeleteTopic, Publish, TrimTopic, UpdateTopic

FILE = """
[clients.alice]
key = "{alice}"
publish = ["mine"]
admin = ["mine"]
group = ["mine"]
"""


@pytest.fixture(autouse=True)
def stop_when_all_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the end of a log wait for its thread, however slow the machine is."""
    monkeypatch.setattr("quothd.service.audit_log.STOP_S", DEADLINE_S)


def records(directory: Path) -> list[dict[str, Any]]:
    path = directory / "audit.log"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def record(number: int, client: str = "alice", event: str = "delete") -> AuditRecord:
    return AuditRecord(number, event, OK, client)


# -- what is recorded ---------------------------------------------------------------------------------------


def test_changes_and_what_is_denied_are_recorded_with_their_outcome(
    known: Callable[..., Any], peers: Peers
) -> None:
    broker = known(FILE)
    peer = broker.fast("alice")
    peer.call(CreateTopic(), "mine")
    peer.publish("mine", [b"a secret value"])
    peer.call(UpdateTopic({"max_age": 5.0}), "mine")
    with refused("bad_setting"):
        peer.call(UpdateTopic({"max_age": -5.0}), "mine")
    peer.call(OpenGroup("g"), "mine")
    peer.call(TrimTopic(1), "mine")
    for request, topic in ((DeleteTopic(), "other"), (Publish(), "other"), (OpenGroup("a.b"), "mine")):
        with refused("denied"):
            peer.call(request, topic, encoded([b"a secret value"]) if isinstance(request, Publish) else None)
    assert handshake(peers.context, broker.broker.urls[0], broker.keys["mallory"]) == DENIED
    peer.call(DeleteTopic(), "mine")
    broker.broker.reload(broker.broker.config)
    broker.broker.stop()
    found = records(broker.broker.config.dir)
    assert [(one["event"], one["outcome"], one.get("topic", "")) for one in found] == [
        ("create", "ok", "mine"),
        ("update", "ok", "mine"),
        ("update", "bad_setting", "mine"),
        ("trim", "ok", "mine"),
        ("delete", "denied", "other"),
        ("publish", "denied", "other"),
        ("open_group", "denied", "mine"),
        ("handshake", "auth_failed", ""),
        ("delete", "ok", "mine"),
        ("reload", "ok", ""),
    ]
    assert [one.get("client") for one in found[:-1]] == ["alice"] * 7 + [None, "alice"]
    assert {one["address"].partition(":")[0] for one in found[:-1]} == {"127.0.0.1"}
    assert all(len(one["key"]) == 40 for one in found[:-1])
    assert "secret" not in (broker.broker.config.dir / "audit.log").read_text()


def test_a_simple_client_is_recorded_too(known: Callable[..., Any]) -> None:
    broker = known(FILE)
    peer = broker.simple("alice")
    for frames in (("publish", "other", "x"), ("group.fetch", "mine", "a.b")):
        with refused("denied"):
            peer.call(*frames)
    peer.call("group.fetch", "mine", "g")
    broker.broker.stop()
    found = [(one["event"], one["topic"]) for one in records(broker.broker.config.dir)]
    assert found == [("publish", "other"), ("group_fetch", "mine")]


def test_without_keys_or_with_audit_off_there_is_no_file(known: Callable[..., Any], tmp_path: Path) -> None:
    broker = known(FILE, audit=False)
    broker.fast("alice").call(CreateTopic(), "mine")
    broker.broker.stop()
    assert not (tmp_path / "data/audit.log").exists()


# -- too many -----------------------------------------------------------------------------------------------


def test_records_beyond_the_limit_of_their_client_and_event_are_counted() -> None:
    throttle = AuditThrottle()
    kept = [throttle.take(record(n), 1.0) for n in range(RECORDS_MAX + 7)]
    assert kept == [[record(n)] for n in range(RECORDS_MAX)] + [[]] * 7
    assert throttle.take(record(1, event="trim"), 1.0) == [record(1, event="trim")]
    assert throttle.take(record(1, "bob"), 1.0) == [record(1, "bob")]
    due = throttle.due()
    assert due == 1.0 + WINDOW_S
    left_out = AuditRecord(99, "delete", LEFT_OUT, "alice", left_out=7)
    assert throttle.take(record(99), due) == [left_out, record(99)]
    assert throttle.due() is None
    assert throttle.end_window(50.0, 100) == []


def test_the_number_of_those_left_out_follows_by_itself(tmp_path: Path) -> None:
    clock = ManualClock()
    log = AuditLog(tmp_path, clock)
    for number in range(RECORDS_MAX + 5):
        log.write(record(number))
    clock.step(int(WINDOW_S) * SECOND)
    log.start()
    log.stop()
    found = records(tmp_path)
    assert len(found) == RECORDS_MAX + 1
    assert found[-1]["left_out"] == 5


# -- the file -----------------------------------------------------------------------------------------------


@pytest.fixture
def log(tmp_path: Path) -> AuditLog:
    """An audit file that begins another one after 1,000 bytes, and is not started."""
    return AuditLog(tmp_path, SystemClock(), file_bytes_max=1_000)


def test_the_file_is_for_its_owner_alone_and_goes_on_after_half_a_line(log: AuditLog, tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    path.write_text('{"half": ')
    path.chmod(0o644)
    log.write(record(1))
    log.start()
    log.stop()
    lines = path.read_text().splitlines()
    assert lines[0] == '{"half": '
    assert json.loads(lines[1])["event"] == "delete"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_full_files_are_kept_and_the_oldest_ones_go(log: AuditLog, tmp_path: Path) -> None:
    log.start()
    for number in range(100):
        log.write(record(number, client=f"client{number:03}"))
        eventually(partial(_has, tmp_path, f"client{number:03}"), "it is written")
    log.stop()
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["audit.log", *(f"audit.log.{number}" for number in range(1, FILES))]
    assert all(path.stat().st_size <= 1_000 for path in tmp_path.iterdir())
    newest_first = [tmp_path / name for name in names]
    lines = [line for path in reversed(newest_first) for line in path.read_text().splitlines()]
    kept = [json.loads(line)["client"] for line in lines]
    assert kept == [f"client{number:03}" for number in range(100 - len(kept), 100)]


def _has_lost(log: AuditLog, count: int) -> bool:
    return log._lost == count


def _has(directory: Path, client: str) -> bool:
    with suppress(FileNotFoundError):  # another one is begun
        return client in (directory / "audit.log").read_text()
    return False


@pytest.mark.parametrize("wrong", ["a directory", "a link", "a pipe"])
def test_what_cannot_be_written_is_logged_once_and_counted(
    log: AuditLog, tmp_path: Path, caplog: pytest.LogCaptureFixture, wrong: str
) -> None:
    """Nothing is written through a link that another program has put there."""
    path, other = tmp_path / "audit.log", tmp_path / "other"
    if wrong == "a directory":
        path.mkdir()
    elif wrong == "a link":
        path.symlink_to(other)
    else:
        os.mkfifo(path)
    log.start()
    for number in range(3):
        log.write(record(number))
        eventually(partial(_has_lost, log, number + 1), "it is lost")
    assert [one.event for one in caplog.records] == ["audit_failed"]  # type: ignore[attr-defined]
    assert not other.exists()
    path.rmdir() if wrong == "a directory" else path.unlink()
    log.write(record(9))
    log.stop()
    assert [(one["event"], one.get("left_out", 0)) for one in records(tmp_path)] == [
        ("delete", 0),
        ("audit", 3),
    ]


def test_too_many_records_that_wait_are_counted_and_block_no_thread(
    log: AuditLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("quothd.service.audit_log.QUEUE_MAX", 10)
    for number in range(25):
        log.write(record(number, client=str(number)))
    log.start()
    log.stop()
    found = records(tmp_path)
    assert [one.get("left_out", 0) for one in found] == [0] * 10 + [15]


def test_a_flood_of_one_client_on_a_disk_that_stalls_leaves_room_for_the_records_of_others(
    log: AuditLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread that is not started stands for one that waits for the disk."""
    monkeypatch.setattr("quothd.service.audit_log.QUEUE_MAX", 2 * RECORDS_MAX)
    for number in range(10 * RECORDS_MAX):
        log.write(record(number, event="fetch"))
    log.write(record(1, "bob"))
    log.start()
    log.stop()
    found = [json.loads(line) for path in tmp_path.iterdir() for line in path.read_text().splitlines()]
    assert sum(one["client"] == "bob" for one in found) == 1
    assert [one["left_out"] for one in found if "left_out" in one] == [9 * RECORDS_MAX]


def test_the_number_of_those_left_out_follows_although_nothing_else_comes(tmp_path: Path) -> None:
    """The thread sleeps when the first one is left out."""
    clock = ManualClock()
    log = AuditLog(tmp_path, clock)
    log.start()
    for number in range(RECORDS_MAX):
        log.write(record(number))
    eventually(lambda: len(records(tmp_path)) == RECORDS_MAX, "those are written")
    clock.step(round((WINDOW_S - 0.1) * SECOND))
    log.write(record(0))
    clock.step(SECOND)
    eventually(lambda: records(tmp_path)[-1].get("left_out") == 1, "the number is written")
    log.stop()


def test_an_unexpected_failure_is_logged_and_counted_and_the_thread_goes_on(
    log: AuditLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> int:
        raise MemoryError("no memory for a record")

    log.start()
    with monkeypatch.context() as patched:
        patched.setattr("quothd.service.audit_log.AuditRecord.line", fail)
        log.write(record(1))
        eventually(partial(_has_lost, log, 1), "it is lost")
    assert "no memory for a record" in caplog.text
    assert [one.event for one in caplog.records] == ["audit_failed"]  # type: ignore[attr-defined]
    log.write(record(2))
    log.stop()
    assert [one.get("left_out", 0) for one in records(tmp_path)] == [0, 1]
