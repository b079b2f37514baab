"""What could be typed next: answers to the questions of a shell, and the names that only a broker knows.

A shell asks by calling `quoth` with `_QUOTH_COMPLETE` set to its name. The arguments are the words up to the
cursor, the last one unfinished; bash, which takes words apart at colons, hands over the line as one argument.
The answer is a candidate a line. Nobody waits for it: a broker has 0.3 s, and whatever fails is no candidate.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from quothcli.cli.command import Group

VARIABLE = "_QUOTH_COMPLETE"
BROKER_S = 0.3
"""Longer than a broker in another town needs, shorter than a person notices."""

BASH = f"""\
_quoth_completion() {{
    COMPREPLY=()
    local candidate
    while IFS= read -r candidate; do
        COMPREPLY+=("$candidate")
    done < <({VARIABLE}=bash "$1" "${{COMP_LINE:0:COMP_POINT}}" 2>/dev/null)
}}
complete -o default -F _quoth_completion quoth
"""
ZSH = f"""\
#compdef quoth
_quoth() {{
    local -a candidates
    candidates=("${{(@f)$({VARIABLE}=zsh "${{words[1]}}" "${{(@Q)words[2,CURRENT]}}" 2>/dev/null)}}")
    candidates=("${{(@)candidates:#}}")
    if (( $#candidates )); then compadd -- "${{(@)candidates}}"; else _files; fi
}}
if [[ "$funcstack[1]" == _quoth ]]; then _quoth "$@"; else compdef _quoth quoth; fi
"""
FISH = f"""\
function __quoth_complete
    set -l words (commandline -opc) (commandline -ct)
    set -l candidates (env {VARIABLE}=fish $words 2>/dev/null)
    if test (count $candidates) -gt 0
        printf '%s\\n' $candidates
    else
        __fish_complete_path (commandline -ct)
    end
end
complete --command quoth --no-files --arguments '(__quoth_complete)'
"""
SCRIPTS = {"bash": BASH, "zsh": ZSH, "fish": FISH}
"""What each shell has to read once."""


def answer(shell: str, typed: Sequence[str], command: Group) -> None:
    """Print the candidates for what was typed."""
    words, quoted = _words(typed[0] if typed else "") if shell == "bash" else (list(typed), False)
    *before, unfinished = words or [""]
    if before or unfinished.startswith("-"):
        candidates = _candidates(command, before, unfinished)
    else:
        candidates = [
            name for name in command.rows if name.startswith(unfinished)
        ]  # without loading them all
    option, equals, _ = unfinished.partition("=")
    prefix = f"{option}=" if shell != "bash" and equals and option.startswith("--") else ""
    for candidate in candidates:
        in_bash = shell == "bash" and not quoted
        print(_for_bash(candidate, unfinished) if in_bash else prefix + candidate)


def _candidates(command: Group, before: list[str], unfinished: str) -> list[str]:
    from typer._completion_classes import BashComplete  # typer has no public door to its walk over the words

    walk = BashComplete(command, {}, "quoth", VARIABLE)
    return [item.value for item in walk.get_completions(before, unfinished) if item.type == "plain"]


def topic_names(context: typer.Context, incomplete: str) -> list[str]:
    """The broker's topics that begin like this; none if it does not answer at once."""
    from quothcli.cli.session import Chosen, chosen  # only here: a shell asks for commands first of all

    typed = [one.params for one in (context, context.find_root())]
    url, ctx = (next((one[name] for one in typed if one.get(name)), None) for name in ("url", "ctx"))
    context.obj = Chosen(ctx=ctx)
    with suppress(Exception), chosen(context, url, BROKER_S).connect() as client:
        return [name for name in client.topics() if name.startswith(incomplete)]
    return []


def context_names(incomplete: str) -> list[str]:
    """The names of contexts that begin like this."""
    from quothcli.cli import contexts

    with suppress(Exception):
        return [name for name in sorted(contexts.load().contexts) if name.startswith(incomplete)]
    return []


def _words(line: str) -> tuple[list[str], bool]:
    """The words behind the command in a line of bash, and whether the last one has an open quote."""
    parser = shlex.shlex(line, posix=True)
    parser.whitespace_split = True
    parser.commenters = ""
    words: list[str] = []
    try:
        words.extend(parser)  # of an open quote it keeps what was whole before
    except ValueError as problem:
        return [*words[1:], parser.token], "quotation" in str(problem)
    if line[-1:].isspace() and line[-2:-1] != "\\":
        words.append("")
    return words[1:], False


def _for_bash(value: str, unfinished: str) -> str:
    """A candidate in the place of bash's last word, which begins behind the last colon of ours."""
    colon = unfinished.rfind(":") + 1
    rest = value[colon:] if value.startswith(unfinished[:colon]) else value
    return re.sub(r"([^\w@%+=:,./-])", r"\\\1", rest)
