"""`quoth log ls` and `quoth log dump`: embedded logs, topics' folders, data directories, damaged or not."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from kit.broker.brokers import BrokerProcess
from kit.disk.damage import flip, truncate
from kit.disk.logs import segments
from kit.machine.commands import Command
from quothwire import pointer as pointers

Fill = Callable[..., list[int]]


VALUES = [f"{number}.{row}" for number in range(6) for row in range(5)]


# -- at rest ----------------------------------------------------------------------------------------


def test_dump_prints_an_embedded_log(alone: Command, directory: Path) -> None:
    told = alone("log", "dump", str(directory), "--format", "raw")
    assert (told.status, told.err) == (0, "")
    assert told.lines == VALUES
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
    told = alone("log", "ls", str(directory), "--format", "json")
    assert (told.status, told.err) == (0, "")
    rows = told.objects
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


def damage(path: Path, values: bytes) -> None:
    """Change a byte of the batch with these values."""
    flip(path, path.read_bytes().index(values))


def test_damage_is_reported_and_stepped_over(alone: Command, directory: Path, tmp_path: Path) -> None:
    found = alone("log", "dump", str(directory), "--format", "json").objects
    harmed = tmp_path / "torn"
    shutil.copytree(directory, harmed)
    last = segments(harmed)[-1]
    truncate(last, last.stat().st_size - 10)
    last.with_suffix(".idx").unlink()  # it claims that the end was synced
    told = alone("log", "dump", str(harmed), "--format", "raw")
    assert (told.status, told.lines) == (0, VALUES[:25])
    assert "are no whole batch" in told.err
    damage(segments(directory)[1], b"2.02.1")
    told = alone("log", "dump", str(directory), "--format", "raw")
    assert (told.status, told.lines) == (1, VALUES[:10] + VALUES[15:])
    (line,) = told.err.splitlines()
    assert line.startswith(f"quoth: damaged: {segments(directory)[1]}: bytes ")
    assert "; 5 records missing, ordinals 10 to 14, behind " in line
    told = alone("log", "ls", str(directory), "--format", "json")
    assert told.status == 1
    assert [(row["records"], len(row["damages"])) for row in told.objects] == [(10, 0), (5, 1), (10, 0)]
    assert told.objects[1]["damages"][0]["records"] == 5
    assert alone("log", "dump", str(directory), "--after", str(found[14]["pointer"])).status == 0
    segments(directory)[1].unlink()
    told = alone("log", "dump", str(directory), "--format", "raw")
    assert (told.status, told.lines) == (1, VALUES[:10] + VALUES[20:])
    assert "a segment before this one is missing; 10 records missing" in told.err
    assert "missing" in alone("log", "ls", str(directory)).lines[-1]


def test_log_of_zeros_is_a_failure(alone: Command, directory: Path) -> None:
    for path in segments(directory):
        path.write_bytes(b"\0" * 100)
    for command in ("ls", "dump"):
        told = alone("log", command, str(directory))
        assert (told.status, told.out) == (1, b"")
        assert "no segment" in told.err


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
    told = quoth("log", "dump", str(broker.directory), "--topic", topic, "--format", "raw")
    assert (told.status, told.err) == (0, "")
    assert told.lines == ["one", "two", "three"]
    (folder,) = broker.topics_directory.glob(f"{topic}~*")
    assert quoth("log", "dump", str(folder), "--format", "raw").lines == ["one", "two", "three"]
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
        told = quoth("log", "dump", str(place))
        assert (told.status, told.err) == (0, "")
        found = [line.split("\t") for line in told.lines if line.startswith(topic)]
        assert {(row[0], row[3]) for row in found} == {(name, f"value of {name}") for name in names}
    objects = quoth("log", "dump", str(broker.directory), "--format", "json").objects
    assert set(names) <= {record["topic"] for record in objects}
