"""What was typed wrongly, in plain words: the library that parses options speaks of ranges and parameters."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import typer

from quothwire.text.suggestion import nearest

_CHOICE = r"(?s)'(?P<typed>.*)' is not one of (?P<choices>'.*')\.?"
_NUMBER = r"(?s)'(?P<typed>.*)' is not a valid (?P<kind>int|float)\w*( range)?\.?"
_RANGE = r"(?s)(?P<typed>\S+) is not in the range .*"
_KINDS = {"int": "a whole number", "float": "a number"}


class Mistake(NamedTuple):
    """What is wrong, and what to do; hint: empty if the command's help has to say it."""

    text: str
    hint: str


def mistake(problem: Any) -> Mistake:
    """Put the error of the library that parses options into plain words; a text that is unknown stays."""
    names = getattr(getattr(problem, "param", None), "opts", None)
    message = str(getattr(problem, "message", ""))
    if not names:
        return Mistake(_plain(problem, getattr(problem, "param_hint", None) or ""), "")
    name = _of_argument(problem.param) or max(names, key=len)
    if (choice := re.fullmatch(_CHOICE, message)) is not None:
        return _no_choice(name, choice["typed"], re.findall(r"'([^']*)'", choice["choices"]))
    if (number := re.fullmatch(_NUMBER, message)) is not None:
        return Mistake(f"{name} is {_KINDS[number['kind']]}, not {number['typed']!r}", "")
    if (beyond := re.fullmatch(_RANGE, message)) is not None:
        return Mistake(f"{name} is {_allowed(problem.param.type)}, not {beyond['typed']}", "")
    return Mistake(_plain(problem, name), "")


def _plain(problem: Any, name: str) -> str:
    """What the error says. That of a value names its option, if it is of one: `name: what is wrong`."""
    if type(problem) is not typer.BadParameter:
        return str(problem.format_message())
    return f"{name}: {problem.message}" if name else str(problem.message)


def _of_argument(param: Any) -> str:
    """The name of an argument as the help shows it; empty for an option."""
    return str(param.metavar or param.name).upper() if param.param_type_name == "argument" else ""


def _allowed(kind: Any) -> str:
    low, high = kind.min, kind.max
    if high is None:
        return f"at least {low}"
    return f"at most {high}" if low is None else f"{low} to {high}"


def _no_choice(name: str, typed: str, choices: list[str]) -> Mistake:
    *others, last = choices
    near = nearest(typed, choices)
    wanted = f"{', '.join(others)} or {last}" if others else last
    return Mistake(f"{name} is {wanted}, not {typed!r}", f"did you mean {near}?" if near else "")
