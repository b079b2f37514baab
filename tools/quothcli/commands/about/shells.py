"""`quoth completion`: the script that lets a shell complete commands, options, topics and contexts."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from quothcli.cli.command import command
from quothcli.cli.completion import SCRIPTS


class Shell(StrEnum):
    """A shell that can ask."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def add(app: typer.Typer) -> None:
    """Put `completion` into the command."""
    command(
        app,
        "completion",
        'eval "$(quoth completion bash)"',
        "quoth completion zsh > ~/.zfunc/_quoth",
        "quoth completion fish > ~/.config/fish/completions/quoth.fish",
    )(completion)


def completion(
    shell: Annotated[Shell, typer.Argument(help="The shell that is to complete.")],
) -> None:
    """Print the script that lets a shell complete what is typed.

    Commands, options, topics of the broker and contexts. In ~/.bashrc stands the first example; zsh finds the
    file in any folder of its fpath, fish in its own.
    """
    print(SCRIPTS[shell], end="")
