"""The files that are a log of appendix, and those that are topics of Poe."""

from __future__ import annotations

from pathlib import Path

import pytest

from kit.inherited.appendix_files import T, put_files, put_segment, put_topics, rows
from quothlog.appendix.log_directory import open_log
from quothlog.appendix.poe import open_topics
from quothlog.appendix.topic_names import bytes_of_name, topic_name
from quothlog.importing.formats import open_source
from quothlog.importing.source import ImportSource
from quothwire.errors import QuothError, RequestError
from quothwire.topic import TOPIC_BYTES_MAX, check_topic


def nothing(_found: object) -> None:
    """Take in progress, or a finding."""


def values(source: ImportSource) -> list[list[bytes]]:
    """The values of each log."""
    return [[one.value for one in log.records(nothing, nothing)] for log in source.logs]


def texts(source: ImportSource) -> list[str]:
    """All findings, those of the listing first; a damage begins with ``!``."""
    found = [*source.findings]
    for log in source.logs:
        list(log.records(nothing, found.append))
    return ["!" * one.is_damage + one.text for one in found]


def problem_of(path: Path) -> QuothError:
    with pytest.raises(RequestError) as raised:
        open_source(path)
    return raised.value


# -- a log of appendix ------------------------------------------------------------------------------


def test_segments_of_a_log_are_read_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    for number, prefix in enumerate(("9", "10", "011", "100")):
        put_segment(tmp_path / prefix, [(T + number, b"%d" % number)])
    source = open_source(tmp_path)
    assert (source.format, source.has_topics) == ("appendix", False)
    assert values(source) == [[b"0", b"1", b"2", b"3"]]
    assert texts(source) == []


def test_a_single_prefix_may_be_any_name(tmp_path: Path) -> None:
    put_segment(tmp_path / "readings", rows(2))
    assert values(open_log(tmp_path)) == [[value for _, value in rows(2)]]


def test_several_logs_in_one_directory_are_imported_by_their_prefixes(tmp_path: Path) -> None:
    put_segment(tmp_path / "a", rows(1))
    put_segment(tmp_path / "b", rows(2))
    put_segment(tmp_path / "7", rows(3))
    found = problem_of(tmp_path)
    assert found.code == "bad_request"
    assert found.text.endswith("holds several logs, since not all prefixes are numbers: 7, a, b")
    assert "DIRECTORY/PREFIX" in (found.hint or "")
    assert [len(open_source(tmp_path / name).logs[0].files) for name in "ab7"] == [2, 2, 2]
    assert values(open_source(tmp_path / "b")) == [[value for _, value in rows(2)]]


def test_locks_and_other_files_are_reported(tmp_path: Path) -> None:
    put_segment(tmp_path / "1", rows(2), locked=True)
    (tmp_path / ".DS_Store").touch()
    (tmp_path / "lost+found").mkdir()
    notes = texts(open_source(tmp_path))
    assert notes[0].endswith("not imported, since no file of a log: .DS_Store, lost+found")
    assert "1_lock is there: its process was killed, or runs" in notes[1]
    assert len(notes) == 2


def test_index_without_its_data_is_damage(tmp_path: Path) -> None:
    put_segment(tmp_path / "1", rows(2))
    put_segment(tmp_path / "2", rows(3, begin=T + 1000))
    (tmp_path / "1_data").unlink()
    assert texts(open_source(tmp_path)) == [
        f"!{tmp_path}/1_data is missing: 2 records, which its index lists, are lost"
    ]


def test_unfinished_write_is_that_of_the_newest_segment_that_is_not_empty(tmp_path: Path) -> None:
    for number in (1, 2, 3):
        put_segment(tmp_path / str(number), rows(2, begin=T + 1000 * number) if number < 3 else [])
    for number in (1, 2):
        path = tmp_path / f"{number}_data"
        path.write_bytes(path.read_bytes()[:-3])
    torn = [text for text in texts(open_source(tmp_path)) if "no whole record" in text]
    assert [text.startswith("!") for text in torn] == [True, False]


# -- topics of Poe ----------------------------------------------------------------------------------


def test_each_directory_with_segments_is_a_topic_of_poe(tmp_path: Path) -> None:
    put_topics(tmp_path, {"b": [rows(2), [], rows(1, begin=T + 1000)], "a": [rows(1)]})
    (tmp_path / "topics" / "lost+found").mkdir()
    (tmp_path / "topics" / ".DS_Store").touch()
    (tmp_path / "topics" / "a" / "notes.txt").touch()
    (tmp_path / "topics" / "a" / "old_data").touch()
    source = open_source(tmp_path)
    assert (source.format, source.has_topics) == ("poe", True)
    assert [(log.topic, log.original, len(log.files)) for log in source.logs] == [("a", "", 2), ("b", "", 6)]
    topics = tmp_path / "topics"
    assert texts(source) == [
        f"{topics}: not imported, since no file of a log: .DS_Store",
        f"{topics}/lost+found: not imported, since it holds no segment of a topic",
        f"{topics}/a: not imported, since no file of a log: notes.txt, old_data",
    ]


def test_topics_outside_of_their_folder_are_found(tmp_path: Path) -> None:
    """Poe takes any name: the segments of `..` lie beside the folder of the topics, those of `.` in it."""
    put_topics(tmp_path, {"a": [rows(1)], ".": [rows(2)], "..": [rows(3)]})
    source = open_source(tmp_path)
    assert [(log.topic, log.original) for log in source.logs] == [("a", ""), ("poe:.", "."), ("poe:..", "..")]
    assert [len(one) for one in values(source)] == [1, 2, 3]
    assert "topic .. (percent-encoded) gets the name 'poe:..', since its own is none here" in texts(source)


NAMES = [
    b"orders",
    "größe & maß".encode(),
    b" spaces ",
    b"%41~.-",
    b".hidden",
    b"poe:x",
    b"poe:%FF",
    b"a/b",
    b"\xff",
    b"\xe4",
    b"tab\there",
    b"new\nline",
    b"..",
    b".",
    b"A" * 200,
    b"A" * 201,
    b"A" * 255,
    b"A" * 254 + b"B",
    b"\xff" * 65,
    b"\xff" * 66,
]


def test_every_name_of_poe_gets_one_of_ours_that_no_other_gets() -> None:
    names = {raw: topic_name(raw) for raw in NAMES}
    assert len({*names.values()}) == len(NAMES)
    for raw, name in names.items():
        assert check_topic(name) == name
        if not name.startswith("poe:") or len(name) < TOPIC_BYTES_MAX:
            assert bytes_of_name(name) == raw, "it can be reversed"
    assert [names[raw] for raw in NAMES[:10]] == [
        "orders", "größe & maß", " spaces ", "%41~.-", ".hidden", "poe:poe%3Ax", "poe:poe%3A%25FF",
        "poe:a%2Fb", "poe:%FF", "poe:%E4",
    ]  # fmt: skip
    assert names[b"A" * 200] == "A" * 200
    assert names[b"A" * 255].startswith("poe:AAA")
    assert names[b"A" * 255][-33] == "~"


# -- neither ----------------------------------------------------------------------------------------


def test_source_of_no_such_format_is_an_error_with_advice(tmp_path: Path) -> None:
    assert (
        "holds no PREFIX_data of appendix, no folder 'topics' of Poe, and no slab"
        in problem_of(tmp_path).text
    )
    put_files(tmp_path / "file", b"", None)
    (tmp_path / "plain").touch()
    assert problem_of(tmp_path / "plain").text.endswith("plain is no directory")
    with pytest.raises(FileNotFoundError):
        open_source(tmp_path / "nothing")
    ours = tmp_path / "ours"
    (ours / "topics" / "orders~0000000000000001").mkdir(parents=True)
    assert problem_of(ours).text.endswith("ours is a data directory of Quoth")
    with pytest.raises(RequestError, match="has no folder 'topics', so it is no data directory of Poe"):
        open_topics(tmp_path)
    with pytest.raises(RequestError, match="holds no file of appendix"):
        open_log(ours)
