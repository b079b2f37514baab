"""Puts the errors of the library that parses options into plain words."""

from __future__ import annotations

import re
from typing import Any

import typer

from quothwire.text.suggestion import nearest

_CHOICE = r"(?s)'(?P<typed>.*)' is not one of (?P<choices>'.*')\.?"
_NUMBER = r"(?s)'(?P<typed>.*)' is not a valid (?P<kind>int|float)\w*( range)?\.?"
_RANGE = r"(?s)(?P<typed>\S+) is not in the range .*"
_KINDS = {"int": "a whole number", "float": "a number"}


def text_and_hint(problem: Any) -> tuple[str, str]:
    """Return what is wrong, and what to do; an empty hint leaves that to the command's help.

    problem: any `UsageError`. An unknown text stays as it is.
    """
    names = getattr(getattr(problem, "param", None), "opts", None)
    message = str(getattr(problem, "message", ""))
    if not names:
        return _plain(problem, getattr(problem, "param_hint", None) or ""), ""
    name = _of_argument(problem.param) or max(names, key=len)
    if (choice := re.fullmatch(_CHOICE, message)) is not None:
        return _no_choice(name, choice["typed"], re.findall(r"'([^']*)'", choice["choices"]))
    if (number := re.fullmatch(_NUMBER, message)) is not None:
        return f"{name} is {_KINDS[number['kind']]}, not {number['typed']!r}", ""
    if (beyond := re.fullmatch(_RANGE, message)) is not None:
        return f"{name} is {_allowed(problem.param.type)}, not {beyond['typed']}", ""
    return _plain(problem, name), ""


def _plain(problem: Any, name: str) -> str:
    """Return the text of an error. That of a value names its option: `name: what is wrong`."""
    if type(problem) is not typer.BadParameter:
        return str(problem.format_message())
    return f"{name}: {problem.message}" if name else str(problem.message)


def _of_argument(param: Any) -> str:
    """Return the name of an argument as the help shows it; empty for an option."""
    return str(param.metavar or param.name).upper() if param.param_type_name == "argument" else ""


def _allowed(kind: Any) -> str:
    low, high = kind.min, kind.max
    if high is None:
        return f"at least {low}"
    return f"at most {high}" if low is None else f"{low} to {high}"


def _no_choice(name: str, typed: str, choices: list[str]) -> tuple[str, str]:
    *others, last = choices
    near = nearest(typed, choices)
    allowed = f"{', '.join(others)} or {last}" if others else last
    return f"{name} is {allowed}, not {typed!r}", f"did you mean {near}?" if near else ""
