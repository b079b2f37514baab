"""`quoth demo` reads back what it has published, for any input."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from pathlib import Path

import pytest

from kit.deadlines import appears
from kit.machine.commands import Command


@pytest.fixture
def temporary(tmp_path: Path) -> Path:
    """The parent of the directory of the demonstration; empty again at its end."""
    directory = tmp_path / "temporary"
    directory.mkdir()
    return directory


def environment(temporary: Path) -> dict[str, str]:
    """Return an environment in which temporary directories are made there."""
    return {"TMPDIR": str(temporary)}


def test_demo_without_a_file_takes_a_text_of_python(alone: Command, temporary: Path) -> None:
    result = alone("demo", environment=environment(temporary))
    assert result.status == 0, result
    text = result.out.decode()
    for expected in (
        "published",
        "read back",
        "records/s",
        "MB/s",
        "written",
        "equal       yes",
        "quoth serve",
    ):
        assert expected in text
    (count,) = re.findall(r"read back +([\d,]+) records", text)
    assert int(count.replace(",", "")) > 1_000, "the default file is long"
    assert result.err == "", "there is progress although stderr is no terminal"
    assert not list(temporary.iterdir())


CASES = {
    "empty": (b"", 0),
    "binary, and no newline at the end": (bytes(range(256)) * 100 + b"\r\n\0\xff", 102),
    "a newline": (b"\n", 1),
    "more than one reply": (b"".join(b"%d %s\n" % (i, b"." * (i % 200)) for i in range(40_000)), 40_000),
}


def test_same_lines_come_back(alone: Command, tmp_path: Path, temporary: Path) -> None:
    """Half of the cases come from a file, the others from stdin."""
    file = tmp_path / "input"
    for case, (content, lines) in CASES.items():
        file.write_bytes(content)
        source = str(file) if lines % 2 else "-"
        result = alone("demo", source, "--format", "json", stdin=content, environment=environment(temporary))
        (found,) = result.objects
        published, read = found["published"], found["read"]
        assert (result.status, found["equal"], published["xxh3_128"]) == (0, True, read["xxh3_128"]), case
        assert (published["records"], read["records"]) == (lines, lines)
        assert published["bytes"] == len(content) - content.count(b"\n")
        assert len(found["pointers"]) == min(lines, 3)
    assert not list(temporary.iterdir())


def test_empty_file_is_reported(alone: Command) -> None:
    result = alone("demo", os.devnull)
    assert result.status == 0
    assert b"is empty" in result.out


def test_file_that_cannot_be_read_is_refused(alone: Command, tmp_path: Path) -> None:
    (tmp_path / "locked").touch()
    for name, status, text in (
        ("missing", 3, "No such file"), (".", 1, "Is a directory"), ("locked/below", 1, "locked/below"),
    ):  # fmt: skip
        happened, _ = alone("demo", str(tmp_path / name)).refused(status)
        assert text in happened


def test_line_that_no_record_can_hold_is_refused(alone: Command, temporary: Path) -> None:
    result = alone("demo", "-", stdin=b"a\n" + b"x" * 17_000_000, environment=environment(temporary))
    assert (result.status, result.out) == (1, b"")
    assert result.err.startswith("quoth: too_large: line 2 has more than ")
    assert not list(temporary.iterdir())


def test_interrupted_demo_cleans_up(alone: Command, temporary: Path) -> None:
    for number, status in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):
        running = alone.start("demo", "-", stdin=subprocess.PIPE, environment=environment(temporary))
        running.write(b"one\n")
        appears(temporary, "*/topics/demo~*/*.seg", "the first line is stored")
        ended = running.end(number)
        assert (ended.status, ended.out) == (status, b"")
        assert not list(temporary.iterdir())


LOSES_A_LINE = """
from quothcli.commands.about import demo

run = demo.run

def losing(source):
    result = run(source)
    result.read.count -= 1
    return result

demo.run = losing
"""


def test_exit_status_of_different_lines_is_1(alone: Command, tmp_path: Path) -> None:
    (tmp_path / "lines").write_text("a\nb\n")
    result = alone.prepared(LOSES_A_LINE)("demo", str(tmp_path / "lines"))
    assert result.status == 1
    assert "equal       NO" in result.out.decode()
    assert "not what was published" in result.err
