"""`quoth help` prints the installed pages and the help of commands."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kit.machine.commands import Command
from quothcli.application import COMMANDS, run
from quothcli.commands.about.pages import FILES, PAGES, page
from quothd.config.config import KEYS
from quothwire.errors import CODES
from quothwire.pointer import parse
from quothwire.text import variables
from quothwire.text.quantity import parse_size, parse_span

ROOT = Path(__file__).parents[3]


def test_pages_are_listed_and_printed(alone: Command) -> None:
    listed = alone("help")
    assert listed.status == 0
    for name in PAGES:
        assert re.search(rf"^  {name} ", listed.out.decode(), re.MULTILINE)
    told = alone("help", "protocol")
    assert (told.status, told.err) == (0, "")
    assert told.out.decode() == (ROOT / "client" / "PROTOCOL.md").read_text("utf-8")


@pytest.mark.parametrize("name", FILES)
def test_page_is_the_document(name: str) -> None:
    assert page(name) == (ROOT / FILES[name]).read_text("utf-8")


@pytest.mark.parametrize("name", sorted(set(PAGES) - set(FILES)))
def test_generated_page_is_complete(name: str, capfd: pytest.CaptureFixture[str]) -> None:
    wanted = {
        "errors": CODES,
        "variables": [*variables.OTHERS, *map(variables.variable, KEYS)],
        "configuration": KEYS,
        "quantities": ["7d", "1GiB", "infinity", "-15m"],
    }[name]
    assert run(["help", name]) == 0
    text = capfd.readouterr().out
    assert [one for one in wanted if one not in text] == []


def test_examples_of_quantities_can_be_parsed() -> None:
    text = PAGES["quantities"].read()
    spans, sizes = (
        line.rpartition(": ")[2].removesuffix(".") for line in text.splitlines() if "text with" in line
    )
    for span in re.split(", | or ", spans):
        parse_span(span)
    for size in re.split(", | or ", sizes):
        parse_size(size, infinity=0)
    now = 1_767_323_045_000_001
    for time in ("2026-01-02T03:04:05Z", "2026-01-02", "-15m", "-1d3h", "now", str(now)):
        assert time in text
        parse(time, now)


def test_help_of_a_command_is_that_of_its_option(capfd: pytest.CaptureFixture[str]) -> None:
    for words in (["topic", "create"], ["ping"], ["bench", "aio"]):
        assert run(["help", *words]) == 0
        text = capfd.readouterr().out
        assert run([*words, "--help"]) == 0
        assert text == capfd.readouterr().out


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        ("protcol", "did you mean `quoth help protocol`?"),
        ("topic crete", "did you mean `quoth help topic create`?"),
        ("topc", "did you mean `quoth help topic`?"),
        ("ls", "did you mean `quoth help topic ls`?"),
        ("topic delete", "did you mean `quoth help topic rm`?"),
        ("ping pong", "`quoth help` lists the pages"),
        ("xyzzy", "`quoth help` lists the pages"),
    ],
)
def test_unknown_page_suggests_a_similar_one(
    words: str, meant: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run(["help", *words.split()]) == 3
    assert meant in capfd.readouterr().err


def test_pages_hide_only_two_commands() -> None:
    assert set(PAGES) & set(COMMANDS) == {"errors", "reference"}


def test_hints_name_commands_and_pages_that_exist() -> None:
    """No hint names a file of the source tree."""
    for code, row in CODES.items():
        assert not re.search(r"\b(client|broker|tools)/", row.hint), code
        for typed in re.findall(r"`quoth ([a-z ]+?)(?: [A-Z]+)?`", row.hint):
            words = typed.split()
            assert words[0] in COMMANDS, code
            assert words[0] != "help" or words[1] in PAGES, code
    assert "`quoth topic set`" in CODES["topic_exists"].hint
