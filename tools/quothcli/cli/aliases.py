"""Words that people type for a command, because another program calls it so.

They are answered with the line to type, not run: a script does not depend on a second name.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import typer
from typer.core import TyperGroup

from quothwire.errors import QuothError

_LS = ("list", "show-all")
_RM = ("delete", "del", "remove")

MEANT: dict[tuple[str, ...], tuple[str, ...]] = {
    **{(word,): ("topic ls",) for word in ("ls", "list")},
    **{(word,): ("tail",) for word in ("sub", "subscribe", "consume", "follow", "watch")},
    **{(word,): ("pub",) for word in ("publish", "produce", "send", "put")},
    **{(word,): ("topic rm",) for word in ("rm", "delete")},
    **{(word,): ("serve",) for word in ("server", "start", "run")},
    **{(word,): ("ctx ls", "ctx") for word in ("context", "contexts")},
    ("topics",): ("topic ls", "topic"),
    ("cat",): ("read",),
    ("create",): ("topic create",),
    ("describe",): ("topic info",),
    ("info",): ("status", "topic info"),
    ("trim",): ("topic trim",),
    ("version",): ("--version",),
    **{("topic", word): ("topic ls",) for word in _LS},
    **{("topic", word): ("topic rm",) for word in _RM},
    **{("topic", word): ("topic info",) for word in ("describe", "show", "get", "status")},
    **{("topic", word): ("topic create",) for word in ("add", "new", "make")},
    **{("topic", word): ("topic set",) for word in ("alter", "change", "config", "update")},
    **{("topic", word): ("topic trim",) for word in ("purge", "truncate")},
    **{("ctx", word): ("ctx ls",) for word in _LS},
    **{("ctx", word): ("ctx rm",) for word in _RM},
    ("log", "list"): ("log ls",),
}
"""The commands that may be meant by words behind `quoth`; the first one that takes the following words is."""

UsageError: Any = typer.BadParameter.__base__
"""Raised for everything that was typed wrongly; its module depends on Typer's version."""


class Meant(UsageError):  # type: ignore[misc]
    """Raised for an alias. number: how many of the last words it stands for. words: the ones to type."""

    def __init__(self, text: str, context: Any, number: int, words: Sequence[str]) -> None:
        super().__init__(text, context)
        self.number = number
        self.words = words


def line_meant(context: Any, path: tuple[str, ...], following: Sequence[str]) -> list[str]:
    """Return the words to type for an alias and the words that follow it.

    They parse; if there is no other way, without those that follow.
    """
    meanings = [meaning.split() for meaning in MEANT[path]]
    if meanings[0][0].startswith("-"):
        return meanings[0]
    for words in ([*meaning, *following] for meaning in meanings):
        if line := _parsed(context.find_root(), words):
            return line
    return _parsed(context.find_root(), meanings[0]) or [*meanings[0], "--help"]


def _parsed(context: Any, words: Sequence[str]) -> list[str]:
    """Parse words without calling their command; returns those to type, none if they do not parse."""
    if any(word in context.help_option_names for word in words):
        return []  # parsing would print the help
    left = list(words)
    try:
        while isinstance(context.command, TyperGroup):
            command: Any
            name, command, left = context.command.resolve_command(context, left)
            context = command.make_context(name, left, parent=context)
    except Meant as problem:
        return list(problem.words)
    except (UsageError, QuothError, IndexError):
        return []
    return list(words)
