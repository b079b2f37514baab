"""An import keeps values, order and rising pointers, reports what it changes, leaves all of it or nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kit.disk.doubles import Died, FaultyDisk
from kit.disk.logs import segments
from kit.inherited.appendix_files import SEGMENTS, T, put_files, put_segment, put_topics, rows
from kit.inherited.imports import import_first, import_into, imported, only_log
from quothlog import Log, LogOptions
from quothlog.datadir import discovery, topic_folder
from quothlog.importing import log_import
from quothlog.importing.log_import import POINTER_KEPT_MAX
from quothlog.importing.source import VALUE_BYTES_MAX
from quothlog.recovery import snapshot
from quothlog.recovery.scan import batches
from quothlog.storage.clock import SystemClock
from quothwire.batch import Flag
from quothwire.errors import Conflict, NotFound, QuothError, RequestError
from quothwire.pointer import POINTER_MAX
from quothwire.settings import TopicSettings

DAY = 86_400_000_000


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return tmp_path / "source"


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "target"


def batches_of(directory: Path, log_id: int = 0) -> list[tuple[int, int, int, int, int]]:
    """The pointer, the number of records, the producer, the sequence and the flags of each batch."""
    return [
        (one.header.base, one.header.records, one.header.producer, one.header.sequence, one.header.flags)
        for part in snapshot.segments(directory, log_id)
        for one in batches(part.file, part.start, part.size, part.log_id)
    ]


def problem_of(target: Path, source: Path, *topics: str) -> QuothError:
    before = sorted(target.parent.rglob("*"))
    with pytest.raises(QuothError) as raised:
        import_into(target, source, *topics)
    assert sorted(target.parent.rglob("*")) == before, "nothing was made"
    return raised.value


# -- what is kept -----------------------------------------------------------------------------------


@pytest.mark.parametrize("vector", SEGMENTS, ids=lambda one: one["name"][:2])
def test_files_of_appendix_itself_become_a_log(source: Path, target: Path, vector: dict[str, Any]) -> None:
    put_files(source / vector["prefix"], bytes.fromhex(vector["data"]), bytes.fromhex(vector["index"]))
    (report,) = import_into(target, source)
    expected = [(int(one["pointer"]), bytes.fromhex(one["value"])) for one in vector["records"]]
    assert only_log(target) == expected
    assert (report.records, report.first, report.last) == (len(expected), expected[0][0], expected[-1][0])
    assert report.bytes == sum(len(value) for _, value in expected)
    assert (report.changed, report.findings) == (0, [])


def test_log_goes_on_above_what_was_imported_as_its_own_producer(source: Path, target: Path) -> None:
    put_segment(source / "1", [*rows(3), *rows(3, begin=T + 1000, step=1)])
    import_into(target, source)
    with Log.open(target) as log:
        assert log.append(b"new").first > T + 1002
        found = batches_of(target)
        flags = int(Flag.ORDINAL)
        assert [row[:4] for row in found[:4]] == [
            (T, 1, log.log_id, 1),
            (T + 100, 1, log.log_id, 2),
            (T + 200, 1, log.log_id, 3),
            (T + 1000, 3, log.log_id, 4),
        ]
        assert [row[3] for row in found] == [1, 2, 3, 4, 7]
        assert all(row[4] & flags for row in found)
    assert segments(target)[0].name == f"{T:017d}.seg", "the name of the first segment is the first pointer"


def test_topics_are_as_a_broker_makes_them(source: Path, target: Path) -> None:
    put_topics(source, {"b": [rows(2)], "größe": [rows(3), rows(1, begin=T + DAY)], "empty": [[]]})
    reports = import_into(target, source)
    assert [(one.topic, one.records) for one in reports] == [("b", 2), ("empty", 0), ("größe", 4)]
    assert {name: len(found) for name, (found, _) in imported(target).items()} == {
        "b": 2,
        "empty": 0,
        "größe": 4,
    }
    places = discovery.places(target)
    assert [(one.topic, one.problem) for one in places] == [("b", ""), ("empty", ""), ("größe", "")]
    assert len({one.log_id for one in places}) == len(places)
    folders = [topic_folder.at(one.directory) for one in places]
    assert [one.topic.settings for one in folders if one is not None] == [TopicSettings()] * 3
    assert not target.with_name("target.importing").exists()


def test_some_topics_are_imported_by_name(source: Path, target: Path) -> None:
    put_topics(source, {name: [rows(1)] for name in ("a", "b", "c/d"[:1])})
    put_topics(source, {"..": [rows(2)]})
    found = problem_of(target, source, "a", "nothing")
    assert isinstance(found, NotFound)
    assert (found.text.endswith("holds no topic 'nothing'"), found.hint) == (
        True,
        "it holds 'a', 'b', 'c', 'poe:..'",
    )
    import_into(target, source, "a", "poe:..")
    assert sorted(imported(target)) == ["a", "poe:.."]


def test_large_values_and_long_runs_of_pointers_are_split_into_batches(source: Path, target: Path) -> None:
    run = [(T + number, b"%d" % number) for number in range(2500)]
    large = [(T + 10_000 + number, bytes([number]) * 400_000) for number in range(5)]
    put_segment(source / "1", [*run, *large])
    import_into(target, source)
    assert only_log(target) == [*run, *large]
    assert [row[1] for row in batches_of(target)] == [1000, 1000, 500, 2, 2, 1]


def test_largest_value_is_imported(source: Path, target: Path) -> None:
    value = bytes(VALUE_BYTES_MAX)
    put_segment(source / "1", [(T, b"x"), (T + 1, value), (T + 2, b"y")])
    (report,) = import_into(target, source)
    assert report.bytes == len(value) + 2
    assert [row[1] for row in batches_of(target)] == [1, 1, 1]
    assert only_log(target)[1] == (T + 1, value)


def test_large_source_becomes_several_segments(
    source: Path, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_import, "_OPTIONS", LogOptions(size_limit=10_000, synced_reads=True))
    put_segment(source / "1", rows(300, step=DAY))
    import_into(target, source)
    assert only_log(target) == rows(300, step=DAY)
    assert len(segments(target)) > 3


# -- what is changed --------------------------------------------------------------------------------


def changed(rows: list[tuple[int, bytes]], expected: list[int], source: Path, target: Path) -> str:
    """Import a segment with some pointers that change; returns what is reported of them."""
    put_segment(source / "1", rows)
    (report,) = import_into(target, source)
    assert only_log(target) == list(zip(expected, [value for _, value in rows], strict=True))
    different = [
        pair for pair in zip(expected, [pointer for pointer, _ in rows], strict=True) if len({*pair}) > 1
    ]
    assert report.changed == len(different)
    assert not report.is_damaged
    return "; ".join(one.text for one in report.findings)


def test_pointers_that_do_not_rise_become_the_last_one_and_one(source: Path, target: Path) -> None:
    pointers = [T, T + 50, T + 50, T + 20, T + 53, T + 54, T]
    expected = [T, T + 50, T + 51, T + 52, T + 53, T + 54, T + 55]
    text = changed([(pointer, b"%d" % row) for row, pointer in enumerate(pointers)], expected, source, target)
    assert text.startswith(
        "3 records got another pointer, since theirs did not rise: the first one, at byte 24 of"
    )
    assert text.endswith(f"1_data, {T + 51} instead of {T + 50}")


def test_pointers_that_leave_no_pointer_above_are_not_kept(source: Path, target: Path) -> None:
    pointers = [0, 7, POINTER_MAX, 8, 100, POINTER_KEPT_MAX + 1]
    text = changed([(pointer, b"x") for pointer in pointers], [1, 7, 8, 9, 100, 101], source, target)
    assert text.startswith("4 records got another pointer")


def test_pointers_ahead_of_the_clock_are_kept_and_reported(source: Path, target: Path) -> None:
    now = SystemClock().now()
    text = changed([(now + 2 * DAY, b"x")], [now + 2 * DAY], source, target)
    assert text.endswith("s ahead of the clock: new records get those behind it")
    changed([(POINTER_KEPT_MAX, b"x")], [POINTER_KEPT_MAX], source / "last", target.with_name("last"))


def test_roll_race_of_poe_changes_no_pointer(source: Path, target: Path) -> None:
    """Two puts were under way to the older segment when the newer one had its first records."""
    older = [(T, b"a"), (T + 10, b"b"), (T + 30, b"late"), (T + 50, b"later")]
    newer = [(T + 20, b"c"), (T + 40, b"d"), (T + 60, b"e")]
    put_topics(source, {"orders": [older, newer]})
    (report,) = import_into(target, source)
    assert only_log(target) == sorted(older + newer)
    assert (report.changed, report.findings) == (0, [])


def test_damage_and_unfinished_writes_are_told_apart(source: Path, target: Path) -> None:
    put_topics(source, {"a": [rows(3), rows(3, begin=T + 1000)], "b": [rows(2)]})
    for path in sorted(source.glob("topics/*/*_data")):
        path.write_bytes(path.read_bytes()[:-1])
    (source / "topics" / "b" / f"{T - 1}_index").unlink()
    a, b = import_into(target, source)
    assert (a.records, a.is_damaged, len(a.findings)) == (4, True, 4)
    assert (b.records, b.is_damaged, len(b.findings)) == (1, False, 2)
    assert len(imported(target)["a"][0]) == 4


def test_record_above_the_limit_is_an_error_that_names_its_place(
    source: Path, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("quothlog.appendix.segment_reader.VALUE_BYTES_MAX", 1000)
    put_topics(source, {"a": [[(T, b"x"), (T + 1, bytes(1001))]], "b": [rows(1)]})
    with pytest.raises(RequestError, match=f"byte 12 of .*/topics/a/{T - 1}_data has 1001 bytes") as raised:
        import_into(target, source)
    assert raised.value.code == "too_large"
    assert raised.value.hint is not None
    assert raised.value.hint.endswith("run the import again with --topic for each of the other topics")
    import_into(target, source, "b")
    assert list(imported(target)) == ["b"]


def test_hint_of_a_single_log_that_is_too_large_names_no_topics(
    source: Path, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("quothlog.appendix.segment_reader.VALUE_BYTES_MAX", 1000)
    put_segment(source / "1", [(T, b"x"), (T + 1, bytes(1001))])
    with pytest.raises(RequestError, match="byte 12 of ") as raised:
        import_into(target, source)
    assert raised.value.hint == "no log here can hold it: it has to be stored in parts"


def test_import_goes_on_with_other_topics(source: Path, target: Path) -> None:
    """Logs that both runs want are those of the first one; the result has the topics of the last run."""
    put_topics(source, {name: [rows(3)] for name in "abcd"})
    assert [one.topic for one in import_first(target, source, 2, "a", "b", "d")] == ["a", "b"]
    kept = {path.stat().st_ino for path in target.with_name("target.importing").rglob("*.seg")}
    import_into(target, source, "b", "c")
    assert sorted(imported(target)) == ["b", "c"]
    left = {path.stat().st_ino for path in target.rglob("*.seg")}
    assert (len(kept), len(left), len(kept & left)) == (2, 2, 1)
    assert not target.with_name("target.importing").exists()


def test_finished_import_that_is_run_with_other_topics(source: Path, target: Path) -> None:
    """Other topics are taken as long as the result has no name, and refused behind that."""
    put_topics(source, {name: [rows(3)] for name in "abc"})
    disk = FaultyDisk()
    disk.fail("rename", changes_of(source, target, "a", "b").count("rename"), Died("before its name"))
    with pytest.raises(Died):
        import_into(target, source, "a", "b", filesystem=disk)
    disk = FaultyDisk()
    disk.fail("remove", 2, Died("before the removal of the state"))
    with pytest.raises(Died):
        import_into(target, source, "b", "c", filesystem=disk)
    assert sorted(imported(target)) == ["b", "c"]
    with pytest.raises(RequestError, match="is there already, imported with other topics"):
        import_into(target, source)
    assert [one.topic for one in import_into(target, source, "b", "c")] == ["b", "c"]
    assert not target.with_name("target.importing").exists()
    assert sorted(imported(target)) == ["b", "c"]


def changes_of(source: Path, target: Path, *topics: str) -> FaultyDisk:
    """Import into another target, undisturbed; returns the disk that has written down the changes."""
    disk = FaultyDisk()
    import_into(target.with_name("undisturbed"), source, *topics, filesystem=disk)
    return disk


# -- the target -------------------------------------------------------------------------------------


def test_target_has_to_be_new_or_empty(source: Path, target: Path, tmp_path: Path) -> None:
    put_topics(source, {"a": [rows(1)]})
    target.mkdir()
    (target / "file").touch()
    assert problem_of(target, source).text.endswith("target is there and no empty directory")
    assert problem_of(target / "file", source).code == "bad_request"
    assert problem_of(source / "topics" / "new", source).text.endswith("lies in the source")
    with pytest.raises(RequestError, match="root of a file system"):
        import_into(Path("/proc"), source)
    (target / "file").unlink()
    (tmp_path / "link").symlink_to(target)
    import_into(tmp_path / "link", source)
    assert list(imported(target)) == ["a"]
    assert problem_of(target, source).code == "bad_request"


def test_target_that_is_filled_meanwhile_stays(source: Path, target: Path) -> None:
    put_topics(source, {"a": [rows(1)]})

    def fill(_size: int) -> None:
        target.mkdir(exist_ok=True)
        (target / "precious").touch()

    with pytest.raises(RequestError, match="is there and no empty directory"):
        import_into(target, source, advance=fill)
    assert [path.name for path in target.iterdir()] == ["precious"]
    (target / "precious").unlink()
    import_into(target, source)
    assert list(imported(target)) == ["a"]


def test_folder_of_the_import_is_never_one_of_another_kind(
    source: Path, target: Path, tmp_path: Path
) -> None:
    put_topics(source, {"a": [rows(1)]})
    work = tmp_path / "target.importing"
    work.symlink_to(source)
    assert problem_of(target, source).text.endswith(
        "target.importing, where the import would work, is something else"
    )
    work.unlink()
    work.mkdir()
    (work / "precious").touch()
    assert problem_of(target, source).code == "bad_request"
    (work / "precious").unlink()
    (work / "import.json").write_text("{}\n")
    with pytest.raises(QuothError, match="does not check") as raised:
        import_into(target, source)
    assert raised.value.code == "damaged"


def test_two_imports_into_one_target_exclude_each_other(source: Path, target: Path) -> None:
    put_topics(source, {"a": [rows(3)]})

    def import_too(_size: int) -> None:
        with pytest.raises(Conflict, match="locked"):
            import_into(target, source)

    import_into(target, source, advance=import_too)
    assert list(imported(target)) == ["a"]


# -- the source -------------------------------------------------------------------------------------


def test_source_stays_as_it_is(source: Path, target: Path) -> None:
    put_topics(source, {"a": [rows(3)], "b": [rows(3)]})

    def state() -> list[tuple[Path, int, int]]:
        return [(path, path.stat().st_size, path.stat().st_mtime_ns) for path in sorted(source.rglob("*"))]

    before = state()
    import_into(target, source)
    assert state() == before


def test_source_that_changes_meanwhile_is_an_error_and_only_that_topic_is_begun_anew(
    source: Path, target: Path
) -> None:
    put_topics(source, {"a": [rows(3)], "b": [rows(3)], "c": [rows(3)]})
    advanced: list[int] = []

    def write(size: int) -> None:
        if not advanced:
            put_topics(source, {"a": [rows(4, size=21)], "d": [rows(1)]})
        advanced.append(size)

    with pytest.raises(Conflict, match=r"has changed while it was imported \(topics 'a', 'd'\)") as raised:
        import_into(target, source, advance=write)
    assert raised.value.code == "locked"
    assert not target.exists()
    kept = {path: path.stat().st_ino for path in target.with_name("target.importing").rglob("*.seg")}
    import_into(target, source)
    assert {name: len(found) for name, (found, _) in imported(target).items()} == {
        "a": 4,
        "b": 3,
        "c": 3,
        "d": 1,
    }
    assert imported(target)["a"][0] == rows(4, size=21)
    left = [path.stat().st_ino for path in target.rglob("*.seg")]
    assert len({*kept.values()} & {*left}) >= 2, "the logs of b and c are those of the first run"


def test_progress_ends_with_all_bytes(source: Path, target: Path) -> None:
    put_topics(source, {"a": [rows(300), rows(3, begin=T + DAY)], "b": [rows(3)]})
    (source / "topics" / "a" / f"{T - 1}_index").write_bytes(b"odd")
    seen: list[int] = []
    import_into(target, source, advance=seen.append)
    assert sum(seen) == sum(path.stat().st_size for path in source.rglob("*_*"))
