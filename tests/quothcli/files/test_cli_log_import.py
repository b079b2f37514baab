"""`quoth log import`: a broker serves the topics of Poe, even if the command was killed or out of room."""

from __future__ import annotations

import random
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

import quoth
from kit.client.records import messages
from kit.disk.small_disks import mounted
from kit.inherited.appendix_files import T, put_segment, put_topics, rows
from kit.inherited.imports import imported
from kit.machine.commands import Command
from kit.scale import times
from quothcli.commands.files.log_import import SourceFormat
from quothlog.importing.formats import FORMATS

Revive = Callable[[Path], quoth.Client]

AT_THE_START = """
import os, signal, threading
from quothcli.commands.files import log_import

shown = log_import.byte_progress

def shown_and_killed(what, total, limit=None):
    threading.Timer({delay}, os.kill, (os.getpid(), signal.SIGKILL)).start()
    return shown(what, total, limit)

log_import.byte_progress = shown_and_killed
"""
"""Kills the command so many seconds after its import begins."""
HALF_WAY = """
import os, signal
from quothcli.commands.files import log_import

shown = log_import.byte_progress

def shown_and_interrupted(what, total, limit=None):
    done = 0

    def count(size):
        nonlocal done
        done += size
        if done - size < total / 2 <= done:
            os.kill(os.getpid(), signal.{signal})

    return __import__("contextlib").nullcontext(count)

log_import.byte_progress = shown_and_interrupted
"""
"""Sends the command a signal when half of its bytes are done."""


@pytest.fixture
def poe(tmp_path: Path) -> Path:
    """A data directory of Poe that was killed: with all that its files can be."""
    first, second = rows(30), rows(20, begin=T + 10_000)
    first.append((T + 10_250, b"late"))
    directory = tmp_path / "poe"
    put_topics(directory, {"orders": [first, second, []], "größe & maß": [rows(5)], "..": [rows(2)]})
    topics = directory / "topics"
    put_segment(topics / "torn" / "5", rows(4), locked=True)
    torn = topics / "torn" / "5_data"
    torn.write_bytes(torn.read_bytes()[:-3])
    index = topics / "torn" / "5_index"
    index.write_bytes(index.read_bytes()[:-12])
    (topics / "größe & maß" / f"{T - 1}_index").unlink()
    return directory


def test_every_format_can_be_typed() -> None:
    assert [*SourceFormat] == [*FORMATS]


def import_all(alone: Command, *arguments: object, status: int = 0) -> list[dict[str, object]]:
    """Import; returns the objects of the topics."""
    result = alone("--format", "json", "log", "import", *map(str, arguments))
    assert result.status == status, result
    return list(result.objects)


def test_broker_serves_all_topics_of_poe_with_the_same_pointers(
    poe: Path, tmp_path: Path, alone: Command, revive: Revive
) -> None:
    result = alone("log", "import", str(poe), str(tmp_path / "data"))
    assert result.status == 0, result
    day = "2023-11-14T22:13:20"
    assert result.lines == [
        f"größe & maß: 5 records, 100 B, {day}.000000Z to {day}.000400Z",
        f"orders: 51 records, 1 kB, {day}.000000Z to {day}.011900Z",
        f"poe:..: 2 records, 40 B, {day}.000000Z to {day}.000100Z",
        f"torn: 3 records, 60 B, {day}.000000Z to {day}.000200Z",
    ]
    assert result.err.replace(f"{poe}/topics/", "").splitlines() == [
        f"quoth: größe & maß: größe & maß/{T - 1}_index is missing; the data was read without it",
        "quoth: poe:..: topic .. (percent-encoded) gets the name 'poe:..', since its own is none here",
        "quoth: torn: torn/5_lock is there: its process was killed, or runs, and has to be stopped",
        "quoth: torn: torn/5_data: 28 bytes at the end, from byte 93 on, are no whole record: a writer had "
        "not finished it; they were left out",
    ]
    client = revive(tmp_path / "data")
    assert client.topics() == ["größe & maß", "orders", "poe:..", "torn"]
    late = [*rows(30), *rows(20, begin=T + 10_000), (T + 10_250, b"late")]
    found = {name: [(one.pointer, one.value) for one in messages(client, name)] for name in client.topics()}
    assert found == {"orders": sorted(late), "größe & maß": rows(5), "poe:..": rows(2), "torn": rows(3)}
    assert client.publish("orders", b"new").first > T + 20_000
    verified = alone("log", "verify", str(tmp_path / "data"))
    assert (verified.status, verified.err) == (0, "")


def test_log_of_appendix_is_imported_and_forwarded(tmp_path: Path, alone: Command, revive: Revive) -> None:
    put_segment(tmp_path / "source" / "readings", rows(20, step=1))
    (row,) = import_all(alone, tmp_path / "source" / "readings", tmp_path / "log", "--format", "appendix")
    assert (row["records"], row["first"], row["last"], row["whole"]) == (20, T, T + 19, True)
    client = revive(tmp_path / "data")
    for _ in range(2):
        result = alone("forward", str(tmp_path / "log"), "--topic", "readings", "--once", "--url", client.url)
        assert result.status == 0, result
    assert [one.value for one in messages(client, "readings")] == [value for _, value in rows(20)]


def test_damage_is_reported_and_fails_the_command(poe: Path, tmp_path: Path, alone: Command) -> None:
    path = poe / "topics" / "orders" / f"{T - 1}_data"
    path.write_bytes(path.read_bytes()[:-1])
    result = alone("log", "import", str(poe), str(tmp_path / "data"), "--topic", "orders")
    assert result.status == 1
    assert result.lines[0].endswith(", damaged")
    assert "quoth: damaged: orders: " in result.err
    assert len(imported(tmp_path / "data")["orders"][0]) == 50


def test_changed_pointers_are_in_the_output(tmp_path: Path, alone: Command) -> None:
    put_segment(tmp_path / "source" / "1", [(T, b"a"), (T, b"b"), (T - 5, b"c")])
    result = alone("log", "import", str(tmp_path / "source"), str(tmp_path / "log"))
    assert result.status == 0
    assert result.lines[0].endswith(", 2 with another pointer")
    assert "2 records got another pointer, since theirs did not rise" in result.err


def test_what_cannot_be_imported_is_refused(poe: Path, tmp_path: Path, alone: Command) -> None:
    def refused(status: int, *arguments: object) -> str:
        return alone("log", "import", *map(str, arguments)).refused(status)[0]

    (tmp_path / "used").mkdir()
    (tmp_path / "used" / "file").touch()
    assert "bad_request" in refused(2, poe, tmp_path / "used")
    assert "not_found" in refused(3, tmp_path / "nothing", tmp_path / "data")
    assert "unknown_topic" in refused(3, poe, tmp_path / "data", "--topic", "nothing")
    (tmp_path / "file").touch()
    assert "os_error" in refused(1, poe, tmp_path / "file" / "data"), "and not that something is kept"
    no_poe = refused(2, poe / "topics" / "torn", tmp_path / "data", "--format", "poe")
    assert "torn has no folder 'topics', so it is no data directory of Poe" in no_poe
    assert not (tmp_path / "data").exists()


def test_interrupted_import_goes_on(poe: Path, tmp_path: Path, alone: Command) -> None:
    expected = import_all(alone, poe, tmp_path / "whole")
    stopped = alone.prepared(HALF_WAY.format(signal="SIGINT"))
    result = stopped("log", "import", str(poe), str(tmp_path / "data"))
    assert result.status == 130
    assert (
        "quoth: interrupted: what was imported is kept, and the same import goes on from there" in result.err
    )
    assert not (tmp_path / "data").exists()
    found = import_all(alone, poe, tmp_path / "data")
    assert [{**row, "directory": ""} for row in found] == [{**row, "directory": ""} for row in expected]
    assert imported(tmp_path / "data") == imported(tmp_path / "whole")


def test_import_beside_another_one_is_refused(poe: Path, tmp_path: Path, alone: Command) -> None:
    running = alone.prepared(HALF_WAY.format(signal="SIGSTOP")).start(
        "log", "import", str(poe), str(tmp_path / "data")
    )
    running.wait_until_stopped()
    happened, _ = alone("log", "import", str(poe), str(tmp_path / "data")).refused(1)
    assert f"data.importing is in use by process {running.process.pid}" in happened
    running.process.send_signal(signal.SIGCONT)
    assert running.end().status == 0
    assert len(imported(tmp_path / "data")) == 4


def test_import_killed_at_random_times_goes_on(tmp_path: Path, alone: Command, rng: random.Random) -> None:
    """The process is killed again and again within the time that an import takes, and then left alone."""
    source, target = tmp_path / "poe", tmp_path / "data"
    put_topics(source, {f"topic {n}": [rows(400), rows(400, begin=T + 100_000)] for n in range(3)})
    expected = import_all(alone, source, tmp_path / "whole")
    ends = []
    for _ in range(times(4, 60)):
        delay = rng.uniform(0, 0.2)
        running = alone.prepared(AT_THE_START.format(delay=delay)).start(
            "log", "import", str(source), str(target)
        )
        ends.append(running.end().status)
        if target.exists():
            break
    assert set(ends) <= {0, -signal.SIGKILL}
    if not target.exists() or (tmp_path / "data.importing" / "import.json").exists():
        found = import_all(alone, source, target)
        assert [{**row, "directory": ""} for row in found] == [{**row, "directory": ""} for row in expected]
    assert imported(target) == imported(tmp_path / "whole")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_import_whose_output_is_full_says_what_is_kept_and_goes_on(
    poe: Path, tmp_path: Path, alone: Command
) -> None:
    with open("/dev/full", "wb") as full:
        ended = alone.start("log", "import", str(poe), str(tmp_path / "data"), stdout=full).end()
    assert ended.status == 1
    assert "quoth: ended: what was imported is kept, and the same import goes on from there" in ended.err
    assert len(import_all(alone, poe, tmp_path / "data")) == 4
    assert len(imported(tmp_path / "data")) == 4


def test_import_out_of_room_says_what_is_kept_and_goes_on(poe: Path, tmp_path: Path, alone: Command) -> None:
    put_segment(poe / "topics" / "large" / "1", rows(2_000, size=500))
    with mounted("tmpfs", tmp_path, 4 * 2**20) as disk:
        disk.fill(leave=600_000)
        happened, advice = alone("log", "import", str(poe), str(disk.path / "data")).err.splitlines()[-2:]
        assert happened.startswith("quoth: disk_low: ")
        assert "what was imported is kept, and the same import goes on from there; free some space" in advice
        assert not (disk.path / "data").exists()
        disk.make_room()
        rows_of = import_all(alone, poe, disk.path / "data")
        assert [row["records"] for row in rows_of if row["topic"] == "large"] == [2_000]
        assert imported(disk.path / "data")["large"][0] == rows(2_000, size=500)
        assert [path.name for path in disk.path.iterdir()] == ["data"]
