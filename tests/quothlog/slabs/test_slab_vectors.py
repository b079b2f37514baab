"""The slabs of queuefka, as its own writer makes them: read as they are, and written byte for byte."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from quothlog.slabs import SlabGap, SlabReader, SlabRecord, SlabWriter, xxh32
from quothwire.errors import RequestError

VECTORS = json.loads(
    (Path(__file__).parents[2] / "vectors" / "inherited" / "slabs.json").read_text(encoding="utf-8")
)
CASES = [pytest.param(case, id=case["name"]) for case in VECTORS["cases"]]
WRITTEN = [pytest.param(case, id=case["name"]) for case in VECTORS["cases"] if "writes" in case]


def lay(case: dict[str, Any], directory: Path) -> None:
    directory.mkdir()
    for name, content in case["files"].items():
        (directory / name).write_bytes(bytes.fromhex(content))


def shown(found: SlabRecord | SlabGap) -> dict[str, Any]:
    if isinstance(found, SlabRecord):
        return {"address": found.address, "value": found.value.hex()}
    return {"address": found.address, "next": found.next, "reason": found.reason}


@pytest.mark.parametrize("case", CASES)
def test_slabs_are_read_as_the_vectors_say(case: dict[str, Any], directory: Path) -> None:
    lay(case, directory)
    address, finished = case.get("from", 0), case.get("finished", False)
    if "error" in case:
        with pytest.raises(RequestError) as raised:
            SlabReader(directory, address, finished=finished)
        assert raised.value.code == case["error"]
        return
    with SlabReader(directory, address, finished=finished) as reader:
        assert [shown(one) for one in reader] == case["read"]
        assert reader.unfinished == case.get("unfinished", 0)
        assert list(reader) == [], "the end is the end as often as it is asked for"
    for one in case["read"]:
        rest = case["read"][case["read"].index(one) :]
        if one["address"] >= address and one.get("next") != one["address"]:
            assert [shown(two) for two in SlabReader(directory, one["address"], finished=finished)] == rest


@pytest.mark.parametrize("case", WRITTEN)
def test_written_slabs_have_the_bytes_of_the_original(case: dict[str, Any], directory: Path) -> None:
    writes = case["writes"]
    addresses = []
    for values in (writes["values"], writes.get("then", [])):
        with SlabWriter(directory, writes["slab_bytes"]) as writer:
            addresses += [writer.write(bytes.fromhex(value)) for value in values]
    assert {path.name: path.read_bytes().hex() for path in directory.iterdir()} == case["files"]
    assert addresses == [one["address"] for one in case["read"]]
    assert directory.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in directory.iterdir()} == {0o600}


def test_checksums_are_those_of_the_original() -> None:
    assert [xxh32(bytes.fromhex(one["value"])) for one in VECTORS["checksums"]] == [
        one["xxh32"] for one in VECTORS["checksums"]
    ]
