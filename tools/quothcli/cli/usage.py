"""Answers a line that was typed wrongly: with what is wrong, and what to type."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Any

import typer

_TYPED = {
    "topic ls": "ls, list, topic list, topic show-all",
    "topic rm": "rm, delete, topic delete, topic del, topic remove",
    "topic info": "describe, info, topic describe, topic show, topic get, topic status",
    "topic create": "create, topic add, topic new, topic make",
    "topic set": "topic alter, topic change, topic config, topic update",
    "topic trim": "trim, topic purge, topic truncate",
    "topic": "topics",
    "ctx ls": "ctx list, ctx show-all",
    "ctx rm": "ctx delete, ctx del, ctx remove",
    "ctx": "context, contexts",
    "log ls": "log list",
    "tail": "sub, subscribe, consume, follow, watch",
    "pub": "publish, produce, send, put",
    "read": "cat",
    "serve": "server, start, run",
    "--version": "version",
}
MEANT = {tuple(words.split()): meant for meant, typed in _TYPED.items() for words in typed.split(", ")}
"""The command that is meant by words behind `quoth`, because another program calls it so.

They are answered with the line to type, not run: a script does not depend on a second name.
"""

UsageError: Any = typer.BadParameter.__base__
"""Raised for everything that was typed wrongly; its module depends on Typer's version."""


class Meant(UsageError):  # type: ignore[misc]
    """Raised for words of `MEANT`. number: how many of the last words are replaced by words."""

    def __init__(self, text: str, context: Any, path: tuple[str, ...], following: Sequence[str]) -> None:
        super().__init__(text, context)
        self.number = len(path) + len(following)
        self.words = words_meant(path, following)


def words_meant(path: tuple[str, ...], following: Sequence[str]) -> list[str]:
    """Return the words to type for some of `MEANT` and those that follow them."""
    words = [*MEANT[path].split(), *following]
    if MEANT[path] in ("topic", "ctx") and (not following or following[0].startswith("-")):
        words.insert(1, "ls")
    again = MEANT.get(tuple(words[:2]))
    return words if again is None else [*again.split(), *words[2:]]


def text_and_hint(problem: Any, arguments: Sequence[str]) -> tuple[str, str]:
    """Return what is wrong with the arguments of `quoth`, and what to do. problem: any `UsageError`."""
    if isinstance(problem, Meant):
        line = shlex.join(["quoth", *arguments[: len(arguments) - problem.number], *problem.words])
        return str(problem.format_message()), f"type `{line}`"
    path = problem.ctx.command_path if problem.ctx is not None else "quoth"
    return str(problem.format_message()), f"`{path} --help` shows how"
