"""Modules in which nothing is compiled, beside those of the process, and the outcome of a call in either."""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib.util import find_spec, module_from_spec
from types import ModuleType
from typing import Any

import pytest

from quothwire import native
from quothwire.errors import QuothError

needs_compiled = pytest.mark.skipif(
    native.implementation() != "C", reason=f"needs compiled functions: {native.implementation()}"
)


def pure(name: str) -> ModuleType:
    """Return a copy of a module whose functions are those in Python."""
    spec = find_spec(name)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    before = os.environ.get(native.SWITCH)
    os.environ[native.SWITCH] = "0"
    try:
        spec.loader.exec_module(module)
    finally:
        if before is None:
            del os.environ[native.SWITCH]
        else:
            os.environ[native.SWITCH] = before
    return module


def outcome(call: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    """Return what a call returns, or the class and content of what it raises. Named tuples become tuples."""
    try:
        return _plain(call(*arguments, **named))
    except QuothError as problem:
        return problem.code, problem.text, problem.hint
    except Exception as problem:
        return type(problem)


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(map(_plain, value))
    if isinstance(value, list):
        return list(map(_plain, value))
    return bytes(value) if isinstance(value, memoryview) else value
