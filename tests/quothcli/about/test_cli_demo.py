"""`quoth demo` with everything that people may feed to it."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from kit.deadlines import appears
from kit.machine.commands import Command
from kit.machine.screens import Screen
from quothcli import application
from quothcli.commands.about import demo
from quothcli.commands.about.demo import DemoResult, Side


@pytest.fixture
def temporary(tmp_path: Path) -> Path:
    """Where the demonstration makes its directory; empty again afterwards."""
    directory = tmp_path / "temporary"
    directory.mkdir()
    return directory


def environment(temporary: Path) -> dict[str, str]:
    """Let temporary directories be made there."""
    return {"TMPDIR": str(temporary)}


def test_without_a_file(alone: Command, temporary: Path) -> None:
    told = alone("demo", environment=environment(temporary))
    assert told.status == 0, told
    text = told.out.decode()
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
    assert told.err == "", "there is progress although stderr is no terminal"
    assert not list(temporary.iterdir())


CASES = {
    "empty": (b"", 0),
    "one line": (b"one\n", 1),
    "a newline": (b"\n", 1),
    "no newline at the end": (b"one\ntwo", 2),
    "carriage returns": (b"one\r\ntwo\r\n", 2),
    "binary": (bytes(range(256)) * 100 + b"\0\xff", 101),
    "long lines": (b"x" * 5_000_000 + b"\n" + b"y" * 16_000_000 + b"\nz", 3),
    "many empty lines": (b"\n" * 50_000, 50_000),
    "more than one reply": (b"".join(b"%d %s\n" % (i, b"." * (i % 200)) for i in range(40_000)), 40_000),
}


@pytest.mark.parametrize("place", ["file", "stdin"])
@pytest.mark.parametrize(("content", "lines"), CASES.values(), ids=CASES)
def test_what_comes_back_is_what_was_there(
    alone: Command, tmp_path: Path, temporary: Path, content: bytes, lines: int, place: str
) -> None:
    file = tmp_path / "input"
    file.write_bytes(content)
    given = str(file) if place == "file" else "-"
    told = alone(
        "demo",
        given,
        "--format",
        "json",
        stdin=content * (place == "stdin"),
        environment=environment(temporary),
    )
    assert told.status == 0, told
    (found,) = told.objects
    published, read = found["published"], found["read"]
    assert found["equal"] is True
    assert (published["records"], read["records"]) == (lines, lines)
    assert published["bytes"] == len(content) - content.count(b"\n")
    assert published["xxh3_128"] == read["xxh3_128"]
    assert len(found["pointers"]) == min(lines, 3)
    assert not list(temporary.iterdir())


def test_an_empty_file_says_so(alone: Command) -> None:
    told = alone("demo", os.devnull)
    assert told.status == 0
    assert b"is empty" in told.out


def test_a_million_lines(alone: Command) -> None:
    content = b"".join(b"%d\n" % number for number in range(1_000_000))
    told = alone("demo", "-", "--format", "json", stdin=content)
    assert told.status == 0, told
    assert told.objects[0]["read"]["records"] == 1_000_000


@pytest.mark.parametrize(
    ("name", "status", "text"),
    [("missing", 3, "No such file"), (".", 1, "Is a directory"), ("missing/below", 3, "No such file")],
)
def test_a_file_that_cannot_be_read(
    alone: Command, tmp_path: Path, name: str, status: int, text: str
) -> None:
    told = alone("demo", str(tmp_path / name))
    assert (told.status, told.out) == (status, b"")
    assert text in told.err
    assert len(told.err.splitlines()) == 2


def test_a_line_that_no_record_can_hold(alone: Command, temporary: Path) -> None:
    told = alone("demo", "-", stdin=b"a\n" + b"x" * 17_000_000, environment=environment(temporary))
    assert (told.status, told.out) == (1, b"")
    assert told.err.startswith("quoth: too_large: line 2 has more than ")
    assert not list(temporary.iterdir())


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_interrupted_it_cleans_up(alone: Command, temporary: Path, number: int, status: int) -> None:
    running = alone.start("demo", "-", stdin=subprocess.PIPE, environment=environment(temporary))
    assert running.process.stdin is not None
    running.process.stdin.write(b"one\n")
    running.process.stdin.flush()
    appears(temporary, "*/topics/demo~*/*.seg", "the first line is stored")
    ended = running.end(number)
    assert (ended.status, ended.out) == (status, b"")
    assert not list(temporary.iterdir())


# -- the comparison itself --------------------------------------------------------------------------


def side(*portions: list[bytes]) -> Side:
    """A side through which these portions went."""
    made = Side()
    for portion in portions:
        made.take(portion)
    return made


def test_the_hash_does_not_depend_on_portions() -> None:
    whole, parts = side([b"a", b"", b"bc"]), side([b"a"], [b"", b"bc"])
    assert whole.digest.digest() == parts.digest.digest()
    assert (whole.count, whole.size) == (parts.count, parts.size) == (3, 3)


@pytest.mark.parametrize("other", [[b"ab", b""], [b"", b"ab"], [b"a"], [b"a", b"b", b""], [b"b", b"a"]])
def test_sides_that_are_not_equal(other: list[bytes]) -> None:
    assert not DemoResult("x", "written", side([b"a", b"b"]), side(other), []).equal
    assert DemoResult("x", "written", side([b"a", b"b"]), side([b"a", b"b"]), []).equal


def test_the_exit_status_tells_that_they_are_not_equal(
    monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    result = DemoResult("x", "written", side([b"a"]), side([b"b"]), [])
    monkeypatch.setattr(demo, "run", lambda source: result)
    assert application.run(["demo", os.devnull]) == 1
    told = capfdbinary.readouterr()
    assert b"equal       NO" in told.out
    assert b"not what was published" in told.err


def test_the_default_file_is_long_enough_to_show_something() -> None:
    with open(demo._default_file(), "rb") as file:
        content = file.read()
    assert content.count(b"\n") > 1_000


def test_progress_is_shown_on_a_terminal_only_and_only_there(alone: Command) -> None:
    screen = Screen(24, 80)
    ended = screen.show_errors(alone, "demo", "--format", "json")
    assert ended.status == 0
    assert ended.objects[0]["equal"]
    assert "publishing" in screen.seen
    assert "Traceback" not in screen.seen
