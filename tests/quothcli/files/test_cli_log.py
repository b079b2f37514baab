"""`quoth log` lists, prints, verifies and repairs embedded logs and data directories, damaged or not."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from kit.broker.brokers import BrokerProcess, StartBroker
from kit.disk.damage import flip, truncate
from kit.disk.logs import segments
from kit.machine.commands import Command
from kit.machine.processes import listing
from kit.machine.screens import Screen
from quothlog import Log, file_format
from quothwire import pointer as pointers

Fill = Callable[..., list[int]]


@pytest.fixture
def stopped(start_broker: StartBroker, alone: Command) -> BrokerProcess:
    """A broker that has ended, with two topics `a` and `b` of two segments."""
    broker = start_broker()
    for name in ("a", "b"):
        for value in ("one", "two"):
            assert alone("pub", name, value, "--url", broker.url).status == 0
            assert alone("topic", "roll", name, "--url", broker.url).status == 0
    broker.terminate()
    return broker


def damage(path: Path, values: bytes = b"3.0") -> None:
    """Change a byte of the batch that holds these bytes."""
    flip(path, path.read_bytes().index(values))


# -- verify -----------------------------------------------------------------------------------------


def test_whole_log_is_reported_as_whole(alone: Command, directory: Path) -> None:
    result = alone("log", "verify", str(directory))
    assert (result.status, result.err) == (0, "")
    size = sum(path.stat().st_size for path in segments(directory))
    assert result.lines == [f"readings: 3 segments, 30 records, {size / 1_000:.3g} kB: whole"]
    (found,) = alone("log", "verify", str(directory), "--format", "json").objects
    assert (found["segments"], found["records"], found["bytes"]) == (3, 30, size)
    assert (found["whole"], found["missing"], found["damages"]) == (True, 0, [])


def test_missing_records_are_reported_by_pointer_and_ordinal(alone: Command, directory: Path) -> None:
    rows = alone("log", "dump", str(directory), "--format", "json").objects
    pointers = [row["pointer"] for row in rows]
    damage(segments(directory)[1])
    result = alone("log", "verify", str(directory))
    assert result.status == 1
    assert result.lines[0].endswith(": 1 damaged, 5 records missing")
    (line,) = result.err.splitlines()
    assert "5 records missing, ordinals 15 to 19" in line
    assert f"behind {pointers[15] - 1} " in line
    assert f"before {pointers[19] + 1} " in line
    (found,) = alone("log", "verify", str(directory), "--format", "json").objects
    (one,) = found["damages"]
    assert (found["whole"], found["missing"], one["ordinal"], one["records"]) == (False, 5, 15, 5)
    assert (one["after"], one["next"]) == (pointers[15] - 1, pointers[19] + 1)


def test_topics_of_a_directory_and_their_settings_are_verified(
    alone: Command, stopped: BrokerProcess
) -> None:
    result = alone("log", "verify", str(stopped.directory))
    assert (result.status, [line.split(":")[0] for line in result.lines]) == (0, ["a", "b"])
    flip(stopped.folder("a") / "topic.json", 40)
    result = alone("log", "verify", str(stopped.directory))
    assert result.status == 1
    assert "topic.json" in result.err
    assert "`quoth topic set` writes its settings again" in result.err
    assert alone("log", "verify", str(stopped.directory), "--topic", "b").status == 0


def test_rate_is_kept(alone: Command, tmp_path: Path) -> None:
    with Log.open(tmp_path / "log") as log:
        for _ in range(10):
            log.append([bytes(50_000)])
    begin = time.monotonic()
    assert alone("log", "verify", str(tmp_path / "log"), "--rate", "1000000").status == 0
    assert time.monotonic() - begin > 0.4


def test_terminal_shows_progress(alone: Command, directory: Path) -> None:
    for command in ("verify", "repair"):
        screen = Screen(24, 80)
        result = screen.show_errors(alone, "log", command, str(directory))
        assert result.status == 0
        assert {"verify": "verifying", "repair": "repairing"}[command] in screen.seen


def test_missing_derived_parts_are_no_damage(alone: Command, directory: Path) -> None:
    path = segments(directory)[0]
    truncate(path, path.stat().st_size - 20)
    path.with_suffix(file_format.INDEX_SUFFIX).unlink()
    result = alone("log", "verify", str(directory))
    assert result.status == 0
    assert result.lines[0].endswith(": whole")
    assert "quoth: derived: " in result.err
    assert "2 derived parts are to be rebuilt, 1 segment without an index; no record is missing" in result.err
    (found,) = alone("log", "verify", str(directory), "--format", "json").objects
    assert (found["whole"], found["missing"], found["derived"], found["unindexed"]) == (True, 0, 2, 1)
    (one,) = found["damages"]
    assert (one["kind"], one["records"]) == ("footer", 0)
    assert alone("log", "ls", str(directory)).status == alone("log", "dump", str(directory)).status == 0


def test_repair_rebuilds_an_index(alone: Command, directory: Path) -> None:
    path = segments(directory)[0]
    path.with_suffix(file_format.INDEX_SUFFIX).unlink()
    assert "1 segment without an index" in alone("log", "verify", str(directory)).err
    (row,) = alone("log", "repair", str(directory), "--format", "json").objects
    assert (row["segment"], row["kept"], row["bytes"]) == (str(path), None, 0)
    assert path.with_suffix(file_format.INDEX_SUFFIX).exists()


# -- repair -----------------------------------------------------------------------------------------


def test_repair_keeps_damaged_bytes_and_the_rest_is_whole(alone: Command, directory: Path) -> None:
    path = segments(directory)[1]
    damage(path)
    before = path.read_bytes()
    readable = alone("log", "dump", str(directory), "--format", "raw").lines
    result = alone("log", "repair", str(directory))
    assert (result.status, result.err) == (0, "")
    (line,) = result.lines
    assert line.startswith(f"readings: {path.name}: ")
    assert line.endswith(f" bytes were no batches, kept in {path.name}.1.damaged")
    assert path.with_name(f"{path.name}.1.damaged").read_bytes() == before
    dumped = alone("log", "dump", str(directory), "--format", "raw")
    assert dumped.lines == readable
    result = alone("log", "verify", str(directory))
    assert result.status == 0
    assert result.lines[0].endswith(": whole, 5 records missing")
    assert "gone for good: 5 records missing, ordinals 15 to 19" in result.err
    assert f"quarantined in {path.name}.1.damaged: delete it" in result.err


def test_repair_of_a_whole_log_changes_nothing(alone: Command, stopped: BrokerProcess) -> None:
    before = listing(stopped.directory)
    result = alone("log", "repair", str(stopped.directory))
    assert (result.status, result.out) == (0, b"")
    assert result.err.splitlines() == ["quoth: a: nothing to repair", "quoth: b: nothing to repair"]
    assert listing(stopped.directory) == before


def test_repair_beside_a_broker_is_refused(
    quoth: Command, broker: BrokerProcess, fill: Fill, topic: str
) -> None:
    fill(b"one")
    for place in (broker.directory, broker.topics_directory, broker.folder(topic)):
        result = quoth("log", "repair", str(place))
        assert result.status == 1
        assert result.err.startswith("quoth: locked: ")
        assert f"in use by process {broker.pid}" in result.err
    assert quoth("log", "verify", str(broker.directory), "--topic", topic).status == 0


def test_broker_serves_a_repaired_log(alone: Command, stopped: BrokerProcess) -> None:
    for name in ("a", "b"):
        flip(segments(stopped.folder(name))[0], 30)  # its header block
    result = alone("log", "repair", str(stopped.directory))
    assert (result.status, len(result.lines)) == (0, 2)
    stopped.restart()
    for name in ("a", "b"):
        assert alone("read", name, "--format", "raw", "--url", stopped.url).lines == ["one", "two"]


# -- ls and dump ----------------------------------------------------------------------------------


VALUES = [f"{number}.{row}" for number in range(6) for row in range(5)]


# -- at rest ----------------------------------------------------------------------------------------


def test_dump_prints_an_embedded_log(alone: Command, directory: Path) -> None:
    result = alone("log", "dump", str(directory), "--format", "raw")
    assert (result.status, result.err) == (0, "")
    assert result.lines == VALUES
    found = alone("log", "dump", str(directory), "--format", "json").objects
    assert [record["value"] for record in found] == VALUES
    assert {record["topic"] for record in found} == {"readings"}
    assert {record["key"] for record in found} == {"k"}
    first = found[0]["pointer"]
    text = alone("log", "dump", str(directory), "--limit", "1").lines
    assert text == [f"{first}\t{pointers.to_text(first)}\t0.0\tkey=k"]


def test_dump_prints_a_part(alone: Command, directory: Path) -> None:
    found = alone("log", "dump", str(directory), "--format", "json").objects

    def dump(*options: str) -> list[str]:
        return alone("log", "dump", str(directory), "--format", "raw", *options).lines

    assert dump("--after", str(found[12]["pointer"])) == VALUES[13:]
    assert dump("--after", str(found[12]["pointer"]), "--limit", "4") == VALUES[13:17]
    assert dump("--after", str(found[-1]["pointer"])) == []
    assert dump("--limit", "0") == []


def test_ls_prints_segments(alone: Command, directory: Path) -> None:
    result = alone("log", "ls", str(directory), "--format", "json")
    assert (result.status, result.err) == (0, "")
    rows = result.objects
    assert [row["records"] for row in rows] == [10, 10, 10]
    assert [row["state"] for row in rows] == ["sealed", "sealed", "active"]
    assert [row["bytes"] for row in rows] == [path.stat().st_size for path in segments(directory)]
    assert [row["segment"] for row in rows] == [str(path) for path in segments(directory)]
    found = alone("log", "dump", str(directory), "--format", "json").objects
    assert [row["first"] for row in rows] == [found[row]["pointer"] for row in (0, 10, 20)]
    assert [row["last_time"] for row in rows] == [found[row]["time"] for row in (9, 19, 29)]
    assert all(row["damages"] == [] for row in rows)
    headings, *lines = alone("log", "ls", str(directory)).lines
    assert headings.split()[0] == "SEGMENT"
    assert [line.split()[0] for line in lines] == [path.name for path in segments(directory)]
    raw = alone("log", "ls", str(directory), "--format", "raw").lines
    assert raw == [str(path) for path in segments(directory)]
    assert alone("log", "ls", str(directory), "--quick", "--format", "json").objects == rows


# -- damage -----------------------------------------------------------------------------------------


def test_damage_is_reported_and_stepped_over(alone: Command, directory: Path, tmp_path: Path) -> None:
    found = alone("log", "dump", str(directory), "--format", "json").objects
    torn = tmp_path / "torn"
    shutil.copytree(directory, torn)
    last = segments(torn)[-1]
    truncate(last, last.stat().st_size - 10)
    last.with_suffix(".idx").unlink()  # it claims that the end was synced
    result = alone("log", "dump", str(torn), "--format", "raw")
    assert (result.status, result.lines) == (0, VALUES[:25])
    assert "are no whole batch" in result.err
    damage(segments(directory)[1], b"2.02.1")
    result = alone("log", "dump", str(directory), "--format", "raw")
    assert (result.status, result.lines) == (1, VALUES[:10] + VALUES[15:])
    (line,) = result.err.splitlines()
    assert line.startswith(f"quoth: damaged: {segments(directory)[1]}: bytes ")
    assert "; 5 records missing, ordinals 10 to 14, behind " in line
    result = alone("log", "ls", str(directory), "--format", "json")
    assert result.status == 1
    assert [(row["records"], len(row["damages"])) for row in result.objects] == [(10, 0), (5, 1), (10, 0)]
    assert result.objects[1]["damages"][0]["records"] == 5
    assert alone("log", "dump", str(directory), "--after", str(found[14]["pointer"])).status == 0
    segments(directory)[1].unlink()
    result = alone("log", "dump", str(directory), "--format", "raw")
    assert (result.status, result.lines) == (1, VALUES[:10] + VALUES[20:])
    assert "a segment before this one is missing; 10 records missing" in result.err
    assert "missing" in alone("log", "ls", str(directory)).lines[-1]


def test_log_of_zeros_is_a_failure(alone: Command, directory: Path) -> None:
    for path in segments(directory):
        path.write_bytes(b"\0" * 100)
    for command in ("ls", "dump"):
        result = alone("log", command, str(directory))
        assert (result.status, result.out) == (1, b"")
        assert "no segment" in result.err


def test_folder_without_a_log_is_refused(alone: Command, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_bytes(b"x")
    for command in ("ls", "dump", "verify", "repair"):
        for name in ("empty", "missing"):
            alone("log", command, str(tmp_path / name)).refused(3)
        assert alone("log", command, str(tmp_path / "file")).status == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["empty", "file"]


# -- a broker's directory ---------------------------------------------------------------------------


def test_dump_and_ls_work_beside_a_broker(
    quoth: Command, broker: BrokerProcess, topic: str, fill: Fill
) -> None:
    fill(b"one", b"two")
    assert quoth("topic", "roll", topic).status == 0
    fill(b"three")
    result = quoth("log", "dump", str(broker.directory), "--topic", topic, "--format", "raw")
    assert (result.status, result.err) == (0, "")
    assert result.lines == ["one", "two", "three"]
    assert quoth("log", "dump", str(broker.folder(topic)), "--format", "raw").lines == ["one", "two", "three"]
    quoth("log", "dump", str(broker.directory), "--topic", "no-such").refused(3)
    rows = quoth("log", "ls", str(broker.directory), "--topic", topic, "--format", "json").objects
    assert [(row["topic"], row["records"], row["state"]) for row in rows] == [
        (topic, 2, "sealed"),
        (topic, 1, "active"),
    ]


def test_dump_prints_all_topics_of_a_directory(quoth: Command, broker: BrokerProcess, topic: str) -> None:
    names = [f"{topic}-{end}" for end in ("a", "ä b", "%41")]
    for name in names:
        assert quoth("pub", name, f"value of {name}").status == 0
    for place in (broker.directory, broker.topics_directory):
        result = quoth("log", "dump", str(place))
        assert (result.status, result.err) == (0, "")
        found = [line.split("\t") for line in result.lines if line.startswith(topic)]
        assert {(row[0], row[3]) for row in found} == {(name, f"value of {name}") for name in names}
    objects = quoth("log", "dump", str(broker.directory), "--format", "json").objects
    assert set(names) <= {record["topic"] for record in objects}
