"""The choice between a function in Python and the compiled function of its name.

`compiled` replaces a Python function by the one in `quothwire._native`, which rests on libquoth (`client/c`).
The Python function stays what defines the behaviour: the compiled one calls it for all that is not plain, and
it runs alone where there was no compiler, or with ``QUOTH_NATIVE=0`` in the environment.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib import import_module
from typing import TypeVar

F = TypeVar("F", bound=Callable[..., object])

SWITCH = "QUOTH_NATIVE"
"""The variable that turns compiled functions off by the value 0."""


def compiled(module: str) -> Callable[[F], F]:
    """Return a decorator that replaces a function by the one of its name in a compiled module, if it can.

    module: its full name, as in ``quothwire._native.batch``.
    """

    def replaced(function: F) -> F:
        found = _load(module)
        return function if found is None else found(function)

    return replaced


def implementation() -> str:
    """Return ``C``, or ``Python`` and the reason."""
    reason = _reason()
    return f"Python: {reason}" if reason else "C"


def _reason() -> str:
    """Return why compiled functions are not used; empty if they are."""
    if os.environ.get(SWITCH) == "0":
        return f"{SWITCH}=0"
    try:
        import_module("quothwire._native.batch")
    except ImportError:
        return "not compiled"
    return ""


def _load(module: str) -> Callable[[F], F] | None:
    """Return the function `take` of a compiled module, None if compiled functions are not used."""
    if os.environ.get(SWITCH) == "0":
        return None
    try:
        return import_module(module).take  # type: ignore[no-any-return]
    except ImportError:
        return None
