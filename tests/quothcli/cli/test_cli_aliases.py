"""A word of another program is answered with the command that is meant."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

import pytest

from kit.machine.commands import Ended
from kit.scale import LONG
from quothcli.application import root, run
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


def answer(words: Sequence[str], capfd: pytest.CaptureFixture[str]) -> tuple[str, str]:
    """Type a line; returns what happened and the line that is meant."""
    status = run(words)
    said = capfd.readouterr()
    happened, advice = Ended(status, said.out.encode(), said.err).refused(2)
    assert advice.startswith("hint: type `quoth ")
    return happened, advice.removeprefix("hint: type `").removesuffix("`")


def test_alias_is_answered_with_the_line_to_type(capfd: pytest.CaptureFixture[str]) -> None:
    for typed, meant in TYPED.items():
        happened, line = answer(shlex.split(typed), capfd)
        assert happened.startswith("quoth: usage: there is no command `quoth ")
        assert line == meant, typed


def parse(words: list[str]) -> None:
    """Parse a line as the command does, without calling it. Raises if that fails."""
    name, command, left = "quoth", root(), words
    context = command.make_context(name, left)
    while isinstance(context.command, Group) and (left := [*context._protected_args, *context.args]):
        name, command, left = context.command.resolve_command(context, left)
        context = command.make_context(name, left, parent=context)


def test_every_answer_parses_whatever_follows(capfd: pytest.CaptureFixture[str]) -> None:
    followed = [[], ["x"], ["x", "y"], ["list"], ["--format", "json"], ["--no-such-option"]]
    for number, typed in enumerate(MEANT):
        for following in followed if LONG else (followed[number % len(followed)],):
            _, line = answer([*typed, *following], capfd)
            words = shlex.split(line)[1:]
            if not {"--help", "--version"} & {*words}:
                parse(words)
