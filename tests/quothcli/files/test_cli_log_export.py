"""`quoth log export` writes the values of a log into queuefka's slabs."""

from __future__ import annotations

from pathlib import Path

import pytest

from kit.broker.brokers import BrokerProcess
from kit.disk.damage import flip
from kit.disk.logs import segments
from kit.machine.commands import Command
from quoth import Client
from quothlog import Log
from quothlog.slabs import SlabReader, SlabRecord

READINGS = [b"%d.%d" % (number, row) for number in range(6) for row in range(5)]


def values_in(directory: Path) -> list[bytes]:
    found = list(SlabReader(directory))
    assert all(isinstance(one, SlabRecord) for one in found), found
    return [one.value for one in found if isinstance(one, SlabRecord)]


def test_values_are_written_and_what_slabs_cannot_hold_is_reported(
    alone: Command, directory: Path, tmp_path: Path
) -> None:
    with Log.open(directory) as log:
        log.append([b"bare", b"", b"with"], headers=[{}, {}, {"n": b"v"}])
    to = tmp_path / "slabs"
    result = alone("log", "export", str(directory), str(to), "--format", "slab", "--slab-bytes", "100")
    assert (result.status, values_in(to)) == (1, [*READINGS, b"bare", b"with"]), result
    assert result.err.splitlines() == [
        "quoth: readings: the keys and headers of 31 records were left out",
        "quoth: readings: 1 record with empty values were left out",
    ]
    assert result.lines == [
        f"readings: exported 32 records, {sum(map(len, values_in(to))) + 32 * 8} B, to {to}"
    ]
    assert len(list(to.iterdir())) > 3
    again = alone("log", "export", str(directory), str(to), "--format", "slab")
    assert "bad_setting" in again.refused(2)[0]


def test_a_part_is_exported(alone: Command, directory: Path, tmp_path: Path) -> None:
    with Log.open(directory) as log:
        pointers = [one.pointer for one in log.read()]
    to = tmp_path / "slabs"
    options = ("--format", "slab", "--after", str(pointers[6]), "--limit", "9")
    result = alone("--format", "json", "log", "export", str(directory), str(to), *options)
    assert (result.status, result.objects[0]["records"]) == (0, 9)
    assert values_in(to) == READINGS[7:16]


def test_damage_is_reported_and_the_rest_is_exported(alone: Command, directory: Path, tmp_path: Path) -> None:
    path = segments(directory)[1]
    flip(path, path.read_bytes().index(b"3.0"))
    to = tmp_path / "slabs"
    result = alone("log", "export", str(directory), str(to), "--format", "slab")
    assert (result.status, "quoth: damaged: " in result.err) == (1, True), result
    assert values_in(to) == [one for one in READINGS if not one.startswith(b"3")]


def test_a_topic_is_exported_beside_its_broker(
    alone: Command, source: BrokerProcess, client: Client, topic: str, tmp_path: Path
) -> None:
    client.publish(topic, b"one")
    client.publish(topic, b"two")
    client.publish(f"{topic}-other", b"other")
    to, data = tmp_path / "slabs", str(source.directory)
    result = alone("log", "export", data, str(to), "--format", "slab")
    assert "--topic: say which of the " in result.refused(2)[0]
    assert alone("log", "export", data, str(to), "--format", "slab", "--topic", topic).status == 0
    assert values_in(to) == [b"one", b"two"]


@pytest.mark.parametrize("missing", ["form", "to"])
def test_the_format_and_the_folder_are_given(alone: Command, directory: Path, missing: str) -> None:
    arguments = ["to"] if missing == "form" else ["", "--format", "slab"]
    alone("log", "export", str(directory), *arguments).refused(2)
