"""What was typed wrongly, in plain words: the library that parses options speaks of inputs and validation.

How it says so depends on its version: newer ones keep what was found in the cause of the error, older ones
have only a text, which is left as it is.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any, NamedTuple

_CHOICES = re.compile(r"(?:Value error, )?'(?P<typed>.*)' is not one of (?P<choices>'.*')\.?", re.DOTALL)
_KINDS = {"int": "a whole number", "float": "a number", "bool": "true or false"}
_LIMITS = {
    "greater_than_equal": ("at least", "ge"),
    "greater_than": ("above", "gt"),
    "less_than_equal": ("at most", "le"),
    "less_than": ("below", "lt"),
}


class Mistake(NamedTuple):
    """What is wrong, and what to do; hint: empty if the command's help has to say it."""

    text: str
    hint: str


def mistake(problem: Any) -> Mistake:
    """Read what is wrong from the error of the library that parses options."""
    names = " / ".join(getattr(getattr(problem, "param", None), "opts", None) or [])
    if not names or not hasattr(problem, "message"):
        return Mistake(problem.format_message(), "")
    name = _of_argument(problem) or max(names.split(" / "), key=len)
    found = _found(problem)
    if (choices := _CHOICES.fullmatch(str(found.get("msg") or problem.message))) is not None:
        return _no_choice(name, choices["typed"], re.findall(r"'([^']*)'", choices["choices"]))
    kind = str(found.get("type", ""))
    typed = found.get("input")
    if kind in _LIMITS:
        word, key = _LIMITS[kind]
        return Mistake(f"{name} is {word} {found['ctx'][key]}, not {typed}", "")
    if (expected := _KINDS.get(kind.partition("_")[0])) is not None:
        return Mistake(f"{name} is {expected}, not {typed!r}", "")
    return Mistake(problem.format_message(), "")


def _of_argument(problem: Any) -> str:
    """The name of an argument as the help shows it; empty for an option."""
    param = problem.param
    return str(param.metavar or param.name).upper() if param.param_type_name == "argument" else ""


def _found(problem: Any) -> Mapping[str, Any]:
    """The first finding of the validation that failed; empty where there was none."""
    errors = getattr(problem.__cause__, "errors", None)
    return next(iter(errors()), {}) if callable(errors) else {}


def _no_choice(name: str, typed: str, choices: list[str]) -> Mistake:
    *others, last = choices
    near = get_close_matches(typed, choices, n=1)
    wanted = f"{', '.join(others)} or {last}" if others else last
    return Mistake(f"{name} is {wanted}, not {typed!r}", f"did you mean {near[0]}?" if near else "")
