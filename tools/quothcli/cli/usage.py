"""Answers a line that was typed wrongly in plain words: with what is wrong, and what to type."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from typing import Any

import typer

from quothwire.text.suggestion import nearest

_TYPED = {
    "topic ls": "ls, list, topic list, topic show-all",
    "topic rm": "rm, delete, topic delete, topic del, topic remove",
    "topic info": "describe, info, topic describe, topic show, topic get, topic status",
    "topic create": "create, topic add, topic new, topic make",
    "topic set": "topic alter, topic change, topic config, topic update",
    "topic trim": "trim, topic purge, topic truncate",
    "topic": "topics",
    "group ls": "group list, group show-all",
    "group rm": "group delete, group del, group remove",
    "group info": "group describe, group show, group get, group status",
    "group create": "group add, group new, group make",
    "group set": "group alter, group change, group config, group update",
    "group seek": "group reset, group rewind, group move",
    "group dead": "group dlq, group dead-letters",
    "group": "groups",
    "rule ls": "rule list, rule show-all",
    "rule rm": "rule delete, rule del, rule remove",
    "rule show": "rule get, rule describe, rule info",
    "rule add": "rule set, rule create, rule update",
    "rule test": "rule check, rule dry-run, rule try",
    "rule": "rules",
    "key new": "keygen, key create, key add, key make, key gen, key generate",
    "key show": "key info, key get, key check, key describe, key print",
    "key": "keys",
    "ctx ls": "ctx list, ctx show-all",
    "ctx rm": "ctx delete, ctx del, ctx remove",
    "ctx": "context, contexts",
    "log ls": "log list",
    "tail": "sub, subscribe, follow, watch",
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

_CHOICE = r"(?s)'(?P<typed>.*)' is not one of (?P<choices>'.*')\.?"
_NUMBER = r"(?s)'(?P<typed>.*)' is not a valid (?P<kind>int|float)\w*( range)?\.?"
_RANGE = r"(?s)(?P<typed>\S+) is not in the range .*"
_KINDS = {"int": "a whole number", "float": "a number"}


class Meant(UsageError):  # type: ignore[misc]
    """Raised for words of `MEANT`. number: how many of the last words are replaced by words."""

    def __init__(self, text: str, context: Any, path: tuple[str, ...], following: Sequence[str]) -> None:
        super().__init__(text, context)
        self.number = len(path) + len(following)
        self.words = words_meant(path, following)


def words_meant(path: tuple[str, ...], following: Sequence[str]) -> list[str]:
    """Return the words to type for some of `MEANT` and those that follow them."""
    words = [*MEANT[path].split(), *following]
    if MEANT[path] in ("topic", "ctx", "group") and (not following or following[0].startswith("-")):
        words.insert(1, "ls")
    again = MEANT.get(tuple(words[:2]))
    return words if again is None else [*again.split(), *words[2:]]


def text_and_hint(problem: Any, arguments: Sequence[str]) -> tuple[str, str]:
    """Return what is wrong with the arguments of `quoth`, and what to do. problem: any `UsageError`."""
    if isinstance(problem, Meant):
        line = shlex.join(["quoth", *arguments[: len(arguments) - problem.number], *problem.words])
        return str(problem.format_message()), f"type `{line}`"
    context, near = getattr(problem, "ctx", None), None
    text = _plain(problem, getattr(problem, "param_hint", None) or "")
    if (param := getattr(problem, "param", None)) is not None and param.opts:
        text, near = _text_of_value(problem, param)
    help_of = "quoth" if context is None else context.command_path
    return text, f"did you mean {near}?" if near else f"`{help_of} --help` shows how"


def _text_of_value(problem: Any, param: Any) -> tuple[str, str | None]:
    """Return what is wrong with a value, and a similar choice. An unknown text stays as it is."""
    message = str(getattr(problem, "message", ""))
    is_argument = param.param_type_name == "argument"
    name = str(param.metavar or param.name).upper() if is_argument else max(param.opts, key=len)
    if choice := re.fullmatch(_CHOICE, message):
        choices = re.findall(r"'([^']*)'", choice["choices"])
        allowed = " or ".join(filter(None, (", ".join(choices[:-1]), choices[-1])))
        return f"{name} is {allowed}, not {choice['typed']!r}", nearest(choice["typed"], choices)
    if number := re.fullmatch(_NUMBER, message):
        return f"{name} is {_KINDS[number['kind']]}, not {number['typed']!r}", None
    if beyond := re.fullmatch(_RANGE, message):
        low, high = param.type.min, param.type.max
        allowed = f"at least {low}" if high is None else f"{low} to {high}"
        return f"{name} is {allowed}, not {beyond['typed']}", None
    return _plain(problem, name), None


def _plain(problem: Any, name: str) -> str:
    """Return the text of an error. That of a value names its option: `name: what is wrong`."""
    if type(problem) is not typer.BadParameter:
        return str(problem.format_message())
    return f"{name}: {problem.message}" if name else str(problem.message)
