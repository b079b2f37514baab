"""`quoth completion`: the script that lets a shell complete commands, options, topics and contexts."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from typer import Argument
from typer._completion_shared import get_completion_script

from quothcli.cli.command import command, group
from quothcli.cli.options import COMPLETION_VARIABLE


class Shell(StrEnum):
    """A shell with completion."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


app = group()


@command(
    app,
    "completion",
    'eval "$(quoth completion bash)"',
    "quoth completion zsh > ~/.zfunc/_quoth",
    "quoth completion fish > ~/.config/fish/completions/quoth.fish",
)
def completion(shell: Annotated[Shell, Argument(help="The shell that is to complete.")]) -> None:
    """Print the script that lets a shell complete what is typed.

    It completes commands, options, contexts, and topics of the broker. In ~/.bashrc stands the first example;
    zsh finds the file in any folder of its fpath, fish in its own.
    """
    print(get_completion_script(prog_name="quoth", complete_var=COMPLETION_VARIABLE, shell=shell))
