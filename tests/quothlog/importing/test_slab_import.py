"""Slabs become a log whose records are found by their addresses."""

from __future__ import annotations

import os
from bisect import bisect_right
from pathlib import Path, PurePath

import pytest

from kit.inherited.imports import import_first, import_into, only_log
from quothlog import Log
from quothlog.importing.import_report import FINDINGS_MAX, BoundedFindings
from quothlog.importing.source import ImportFinding
from quothlog.slabs import SlabAddresses, SlabReader, SlabRecord, SlabWriter, import_producer, stored_in
from quothlog.slabs.slab_format import encode_record, slab_name
from quothlog.slabs.slab_source import open_slabs
from quothwire.errors import NotFound

WRITTEN_NS = 1_700_000_000_000_000_000
"""The time of the last change of the first slab; each other one is a second later."""


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Several slabs with different times."""
    directory = tmp_path / "source"
    with SlabWriter(directory, 80) as writer:
        for number in range(20):
            writer.write(b"value %d" % number * (1 + number % 3))
    for row, path in enumerate(slabs(directory)):
        os.utime(path, ns=(WRITTEN_NS + row * 10**9,) * 2)
    assert len(slabs(directory)) > 5
    return directory


def slabs(directory: Path) -> list[Path]:
    return sorted(directory.glob("*.slab"))


def records(directory: Path) -> list[SlabRecord]:
    return [one for one in SlabReader(directory, finished=True) if isinstance(one, SlabRecord)]


def check_addresses(target: Path, expected: list[SlabRecord]) -> None:
    """Check that address and pointer of each record lead to each other."""
    rows = only_log(target)
    with Log.open(target) as log:
        addresses = SlabAddresses(stored_in(log), import_producer(log.log_id))
        for (pointer, value), record in zip(rows, expected, strict=True):
            assert value == record.value
            assert addresses.address_of(pointer) == record.address
            assert addresses.pointer_of(record.address) == pointer
        with pytest.raises(NotFound, match="unknown_record"):
            addresses.pointer_of(expected[-1].next)


def test_records_keep_their_order_and_their_addresses(source: Path, tmp_path: Path) -> None:
    (report,) = import_into(tmp_path / "target", source)
    assert (report.records, report.changed, report.findings) == (20, 0, [])
    check_addresses(tmp_path / "target", records(source))


def test_pointers_end_before_the_last_change_of_the_slab(source: Path, tmp_path: Path) -> None:
    import_into(tmp_path / "target", source)
    starts = [int(path.stem) for path in slabs(source)]
    for (pointer, _), record in zip(only_log(tmp_path / "target"), records(source), strict=True):
        row = bisect_right(starts, record.address) - 1
        assert 0 <= WRITTEN_NS // 1_000 + row * 10**6 - pointer < 1_000


def test_pointers_rise_where_all_slabs_have_the_same_time(source: Path, tmp_path: Path) -> None:
    """As after a copy that does not keep the times."""
    for path in slabs(source):
        os.utime(path, ns=(WRITTEN_NS, WRITTEN_NS))
    (report,) = import_into(tmp_path / "target", source)
    assert report.changed == 0
    check_addresses(tmp_path / "target", records(source))


def test_gaps_are_damage_unless_the_first_slabs_were_removed(source: Path, tmp_path: Path) -> None:
    removed, _, missing, damaged, *_ = slabs(source)
    removed.unlink()
    (report,) = import_into(tmp_path / "removed", source)
    assert (report.is_damaged, len(report.findings)) == (False, 1)
    missing.unlink()
    damaged.write_bytes(b"\xff" + damaged.read_bytes()[1:])
    (source / "notes").touch()
    (report,) = import_into(tmp_path / "damaged", source)
    assert report.is_damaged
    assert [one.is_damage for one in report.findings] == [False, True, True]
    check_addresses(tmp_path / "damaged", records(source))


def test_unfinished_write_at_the_end_is_no_damage(source: Path, tmp_path: Path) -> None:
    last = [path for path in slabs(source) if path.stat().st_size][-1]
    for path in slabs(source):
        if path > last:
            path.unlink()
    last.write_bytes(last.read_bytes()[:-1])
    (report,) = import_into(tmp_path / "target", source)
    assert (report.records, [one.is_damage for one in report.findings]) == (19, [False])
    assert "a writer had not finished it" in report.findings[0].text
    check_addresses(tmp_path / "target", records(source))


def test_findings_without_number_are_counted(tmp_path: Path) -> None:
    """The row, from which the next run takes the report, stays small, and damage is still known."""
    (tmp_path / "source").mkdir()
    gaps = b"".join(b"\xff" + encode_record(b"%05d" % number) for number in range(2_000))
    (tmp_path / "source" / slab_name(0)).write_bytes(gaps)
    target = tmp_path / "target"
    (report,) = import_first(target, tmp_path / "source", 1)
    (row,) = (tmp_path / "target.importing" / "logs").iterdir()
    assert row.stat().st_size < 100_000
    assert (report.records, len(report.findings)) == (2_000, FINDINGS_MAX + 1)
    assert report.findings[-1] == ImportFinding("1900 more findings, 1900 of them damage", is_damage=True)
    assert import_into(target, tmp_path / "source") == [report]


def test_damage_that_is_only_counted_is_damage() -> None:
    findings = BoundedFindings()
    for _ in range(FINDINGS_MAX):
        findings.add(ImportFinding("a fact"))
    assert len(findings.all()) == FINDINGS_MAX
    findings.add(ImportFinding("another fact"))
    assert findings.all()[-1] == ImportFinding("1 more finding, 0 of them damage")
    findings.add(ImportFinding("damage", is_damage=True))
    assert findings.all()[-1] == ImportFinding("2 more findings, 1 of them damage", is_damage=True)


def test_listing_of_many_slabs_compares_no_two_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The time of a listing grows with the number of slabs, not with the square of it."""
    for number in range(50):
        (tmp_path / slab_name(number)).touch()
    (tmp_path / "notes").touch()
    compared: list[object] = []

    def is_equal(path: PurePath, other: object) -> bool:
        compared.append(other)
        return isinstance(other, PurePath) and str(path) == str(other)

    with monkeypatch.context() as patch:
        patch.setattr(PurePath, "__eq__", is_equal)
        found = open_slabs(tmp_path)
    assert (len(found.logs[0].files), len(found.findings), len(compared)) == (50, 1, 0)


def test_log_goes_on_behind_what_was_imported(source: Path, tmp_path: Path) -> None:
    import_into(tmp_path / "target", source)
    with Log.open(tmp_path / "target") as log:
        assert log.append(b"new").first > log.info().first
        assert [one.value for one in log.read()][-1] == b"new"
        assert not log.append(b"newer").duplicate
