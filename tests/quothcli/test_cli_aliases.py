"""Words that people type for a command are answered with the command that is meant."""

from __future__ import annotations

import shlex

import pytest

from kit.commands import Command
from quothcli.aliases import MEANT
from quothcli.application import tree
from quothcli.command import Group

TYPED = {
    "topic list --format json": "quoth topic ls --format json",
    "topic delete 'my orders' --yes": "quoth topic rm 'my orders' --yes",
    "topic describe orders": "quoth topic info orders",
    "ls": "quoth topic ls",
    "sub orders -n 8": "quoth tail orders -n 8",
    "consume orders": "quoth tail orders",
    "--url tcp://a:1 topic list": "quoth --url tcp://a:1 topic ls",
}


@pytest.mark.parametrize("typed", TYPED)
def test_the_answer_is_what_to_type(alone: Command, typed: str) -> None:
    told = alone(*shlex.split(typed))
    assert (told.status, told.out) == (2, b"")
    happened, advice = told.err.splitlines()
    assert happened.startswith("quoth: usage: there is no command `quoth ")
    assert advice == f"hint: type `{TYPED[typed]}`"


def found(words: tuple[str, ...]) -> bool:
    """Tell whether there is such a command."""
    command: object = tree()
    for word in words:
        if not isinstance(command, Group) or word not in command.commands:
            return word == "--version"
        command = command.commands[word]
    return True


@pytest.mark.parametrize("typed", MEANT, ids=" ".join)
def test_what_is_meant_exists_and_what_is_typed_does_not(typed: tuple[str, ...]) -> None:
    assert found(tuple(MEANT[typed].split()))
    assert not found(typed)
