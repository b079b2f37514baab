"""`quoth help` prints the installed pages and the help of commands, `quoth errors` explains codes."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import quoth
from kit.machine.commands import Command
from quothcli.application import COMMANDS
from quothcli.cli.command_codes import COMMAND_CODES
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
    result = alone("help", "protocol")
    assert (result.status, result.err) == (0, "")
    assert result.out.decode() == (ROOT / "client" / "PROTOCOL.md").read_text("utf-8")


def test_pages_are_the_documents_and_the_generated_ones_are_complete(alone: Command) -> None:
    for name, file in FILES.items():
        assert page(name) == (ROOT / file).read_text("utf-8")
    generated = {
        "errors": CODES,
        "variables": [*variables.OTHERS, *map(variables.variable, KEYS)],
        "configuration": [f"#{key.name_in_table} = " for key in KEYS.values()],
        "quantities": ["7d", "1GiB", "infinity", "-15m"],
    }
    assert generated.keys() == set(PAGES) - set(FILES)
    for name, wanted in generated.items():
        text = alone("help", name).out.decode()
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


def test_help_of_a_command_is_that_of_its_option(alone: Command) -> None:
    for words in (["topic", "create"], ["ping"], ["bench", "api"]):
        assert alone("help", *words) == alone(*words, "--help")


MEANT = {
    "protcol": "did you mean `quoth help protocol`?",
    "topic crete": "did you mean `quoth help topic create`?",
    "topc": "did you mean `quoth help topic`?",
    "ls": "did you mean `quoth help topic ls`?",
    "topic delete": "did you mean `quoth help topic rm`?",
    "ping pong": "`quoth help` lists the pages",
    "xyzzy": "`quoth help` lists the pages",
}


def test_unknown_page_suggests_a_similar_one(alone: Command) -> None:
    for words, meant in MEANT.items():
        _, hint = alone("help", *words.split()).refused(3)
        assert meant in hint, words


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


# -- errors -----------------------------------------------------------------------------------------------


def test_one_code_is_explained(alone: Command) -> None:
    result = alone("errors", "disk_low")
    assert result.status == 0, result
    assert result.lines[0] == "disk_low"
    assert f"  hint: {CODES['disk_low'].hint}" in result.lines
    assert f"  {CODES['disk_low'].meaning}" in result.lines
    assert result.lines[-1] == "  may succeed if tried again; quoth.Unavailable in Python; exit status 1"


def test_all_codes_are_explained(alone: Command) -> None:
    result = alone("errors", "--format", "json").objects
    assert [one["code"] for one in result] == [*CODES, *COMMAND_CODES]
    assert all(one["meaning"].endswith(".") and one["hint"] for one in result)
    assert {one["code"]: one["retryable"] for one in result if one["error"]} == {
        code: row.retryable for code, row in CODES.items()
    }
    classes = [getattr(quoth, one["error"]) for one in result if one["error"]]
    assert all(issubclass(one, quoth.QuothError) for one in classes)


def calls(name: str, folder: str = "tools") -> Iterator[ast.Call]:
    """Yield the calls of a function or class in the sources of the commands, or in another folder."""
    for file in (ROOT / folder).rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == name:
                yield node


def test_codes_of_the_commands_are_all_explained(alone: Command) -> None:
    made = [*calls("Refused"), *calls("LetterProblem", "client/python/quoth/groups/letters")]
    found = {call.args[0].value for call in made if isinstance(call.args[0], ast.Constant)}
    assert found - CODES.keys() <= COMMAND_CODES.keys()
    assert COMMAND_CODES.keys() - found == {"usage", "not_found"} - found
    assert not COMMAND_CODES.keys() & CODES.keys()
    assert alone("errors", "key_exists").lines[-1] == (
        "  fails again if tried again; of the command `quoth`; exit status 1"
    )
    assert alone("errors", "usage", "--format", "json").objects[0]["exit_status"] == 2


def test_unknown_code_suggests_a_similar_one(alone: Command) -> None:
    happened, advice = alone("errors", "disc_low").refused(3)
    assert "unknown_code: no error has the code 'disc_low'" in happened
    assert "disk_low" in advice
