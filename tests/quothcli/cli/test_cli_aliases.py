"""Words that people type for a command are answered with the command that is meant."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from functools import cache

import pytest
from typer.core import TyperCommand

from kit.machine.commands import Command
from quothcli.application import run, tree
from quothcli.cli.aliases import MEANT
from quothcli.cli.command import Group

TYPED = {
    "topic list --format json": "quoth topic ls --format json",
    "topic delete 'my orders' --yes": "quoth topic rm 'my orders' --yes",
    "topic describe orders": "quoth topic info orders",
    "ls": "quoth topic ls",
    "sub orders -n 8": "quoth tail orders -n 8",
    "consume orders": "quoth tail orders",
    "--url tcp://a:1 topic list": "quoth --url tcp://a:1 topic ls",
    "context": "quoth ctx ls",
    "context ls": "quoth ctx ls",
    "contexts list --format json": "quoth ctx ls --format json",
    "context use prod": "quoth ctx use prod",
    "context --format json": "quoth ctx ls --format json",
    "topics": "quoth topic ls",
    "topics list": "quoth topic ls",
    "topics create x --max-age 7d": "quoth topic create x --max-age 7d",
    "--url tcp://a:1 topics delete x": "quoth --url tcp://a:1 topic rm x",
    "topics orders": "quoth topic ls",
    "info": "quoth status",
    "info orders": "quoth topic info orders",
    "ls orders": "quoth topic ls",
    "topic list orders": "quoth topic ls",
    "sub": "quoth tail --help",
    "sub --help": "quoth tail --help",
    "sub orders --limit many": "quoth tail --help",
    "version 2": "quoth --version",
}


@pytest.mark.parametrize("typed", TYPED)
def test_the_answer_is_what_to_type(alone: Command, typed: str) -> None:
    told = alone(*shlex.split(typed))
    assert (told.status, told.out) == (2, b"")
    happened, advice = told.err.splitlines()
    assert happened.startswith("quoth: usage: there is no command `quoth ")
    assert advice == f"hint: type `{TYPED[typed]}`"


all_commands = cache(tree)


def is_command(words: Sequence[str]) -> bool:
    """Is there such a command, or group of commands?"""
    command: object = all_commands()
    for word in words:
        if not isinstance(command, Group) or word not in command.commands:
            return False
        command = command.commands[word]
    return True


@pytest.mark.parametrize("typed", MEANT, ids=" ".join)
def test_what_is_meant_exists_and_what_is_typed_does_not(typed: tuple[str, ...]) -> None:
    assert all(is_command(meaning.split()) for meaning in MEANT[typed] if meaning != "--version")
    assert not is_command(typed)


@pytest.mark.parametrize("typed", MEANT, ids=" ".join)
def test_every_answer_parses(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, typed: tuple[str, ...]
) -> None:
    """Whatever follows. It is read by the real parser; what it would do is left out, which needs a broker."""
    monkeypatch.setattr(TyperCommand, "invoke", lambda *_: None)
    for following in ([], ["x"], ["x", "y"], ["list"], ["--format", "json"], ["--no-such-option"]):
        assert run([*typed, *following]) == 2
        answer = capfd.readouterr().err.splitlines()[-1]
        assert answer.startswith("hint: type `quoth ")
        assert run(shlex.split(answer.strip("`").partition("`quoth ")[2])) == 0, answer
        assert capfd.readouterr().err == ""
