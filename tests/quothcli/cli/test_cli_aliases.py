"""A word of another program is answered with the command that is meant."""

from __future__ import annotations

import shlex

import pytest

from kit.machine.commands import Ended
from quothcli.application import root, run
from quothcli.cli.command import Group
from quothcli.cli.usage import MEANT

TYPED = {
    "topic list --format json": "quoth topic ls --format json",
    "topic delete 'my orders' --yes": "quoth topic rm 'my orders' --yes",
    "topic describe orders": "quoth topic info orders",
    "ls": "quoth topic ls",
    "sub orders -n 8": "quoth tail orders -n 8",
    "--url tcp://a:1 topic list": "quoth --url tcp://a:1 topic ls",
    "context": "quoth ctx ls",
    "contexts list --format json": "quoth ctx ls --format json",
    "context use prod": "quoth ctx use prod",
    "context --format json": "quoth ctx ls --format json",
    "topics": "quoth topic ls",
    "topics create x --max-age 7d": "quoth topic create x --max-age 7d",
    "--url tcp://a:1 topics delete x": "quoth --url tcp://a:1 topic rm x",
    "info orders": "quoth topic info orders",
    "sub --help": "quoth tail --help",
}


def test_alias_is_answered_with_the_line_to_type(capfd: pytest.CaptureFixture[str]) -> None:
    for typed, meant in TYPED.items():
        status = run(shlex.split(typed))
        said = capfd.readouterr()
        happened, advice = Ended(status, said.out.encode(), said.err).refused(2)
        assert happened.startswith("quoth: usage: there is no command `quoth ")
        assert advice == f"hint: type `{meant}`", typed


def test_command_that_is_meant_exists_and_its_alias_does_not() -> None:
    for path, meant in MEANT.items():
        group: Group = root()
        for word in meant.split() if meant != "--version" else ():
            group = group.get_command(None, word)
            assert group is not None, meant
        above = root() if len(path) == 1 else root().get_command(None, path[0])
        assert above.get_command(None, path[-1]) is None, path
