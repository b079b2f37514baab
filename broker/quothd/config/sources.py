"""Where a configuration comes from: arguments win over the environment, that over the file, over defaults.

A variable is ``QUOTH_`` and the key in capitals; the file is TOML. No file is read that nobody named. A key
or a variable that does not exist is an error that suggests the right one.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from quothd.config.config import KEYS, Config, Key, Size, Span
from quothwire.errors import QuothError, error, quoted
from quothwire.text.paths import given_path
from quothwire.text.quantity import parse_size, parse_span
from quothwire.text.suggestion import nearest
from quothwire.text.variables import check_variables, is_of_kubernetes, variable

FILE_HELP = "A TOML file with these keys; no file is read unless it is named here. SIGHUP reads it again."
CHECK_HELP = "Do not start: say whether it could, and in what it differs from the defaults."
DEFAULT = "default"


@dataclass(frozen=True, slots=True)
class Sourced:
    """A configuration, and where each value that somebody gave comes from.

    origins: by key, the argument, the variable, or FILE:LINE.
    """

    config: Config
    origins: Mapping[str, str]

    def origin(self, key: str) -> str:
        """Where the value of a key comes from."""
        return self.origins.get(key, DEFAULT)

    def changes(self) -> tuple[str, ...]:
        """The keys whose value is not the default."""
        return self.config.differing(Config())


class _Given(NamedTuple):
    """A value that somebody gave. origin: where; name: the key as it stands there."""

    name: str
    value: Any
    origin: str


def read(
    arguments: Mapping[str, Any], environment: Mapping[str, str] = os.environ, file: Path | None = None
) -> Sourced:
    """Put a configuration together. Raises `RequestError` ``bad_setting``, naming where it stood.

    arguments: by key; None stands for what was not said.
    """
    chosen: dict[str, Any] = {}
    origins: dict[str, str] = {}
    in_file = [] if file is None else _in_file(file)
    for given in (*in_file, *_in_environment(environment), *_in_arguments(arguments)):
        key = _known(given)
        chosen[key.name] = _converted(key, given)
        origins[key.name] = given.origin
    check_variables(environment, lambda: KEYS)
    return Sourced(Config(**chosen), origins)


def load(
    arguments: Mapping[str, Any], environment: Mapping[str, str] = os.environ, file: Path | None = None
) -> Config:
    """The configuration alone; see `read`."""
    return read(arguments, environment, file).config


# -- the sources ----------------------------------------------------------------------------------------


def _in_file(file: Path) -> Iterator[_Given]:
    text = _text_of(file)
    try:
        content = tomllib.loads(text)
    except tomllib.TOMLDecodeError as problem:
        raise error(
            "bad_setting", f"{file} is no TOML: {problem}", 'a line is KEY = VALUE, text in "..."'
        ) from None
    except (ValueError, RecursionError):  # of thousands of digits or brackets, which is valid TOML
        text = f"{file} holds a number or a nested list that is too long to be read"
        raise error("bad_setting", text, "no key takes one: correct the file") from None
    for name, value in content.items():
        yield _Given(name, value, f"{file}{_line_of(name, text)}")


def _text_of(file: Path) -> str:
    try:
        return file.read_bytes().decode()
    except OSError as problem:
        hint = "is the path right? without --config no file is read"
        raise error("bad_setting", f"{file}: {problem.strerror}", hint) from None
    except UnicodeDecodeError as problem:
        line = problem.object.count(b"\n", 0, problem.start) + 1
        raise error("bad_setting", f"{file}:{line}: a byte that is not UTF-8", "TOML is UTF-8") from None


def _line_of(name: str, text: str) -> str:
    """Where a key stands, as ":LINE"; empty if it is written in a way that hides it."""
    written = re.search(rf"""^[ \t]*(?:\[ *)?["']?{re.escape(name)}["']?[ \t]*[=.\]]""", text, re.MULTILINE)
    return f":{text.count(chr(10), 0, written.start()) + 1}" if written else ""


def _in_environment(environment: Mapping[str, str]) -> Iterator[_Given]:
    for name in KEYS:
        value = environment.get(named := variable(name))
        if value is not None and not is_of_kubernetes(named, value):
            yield _Given(name, value, named)


def _in_arguments(arguments: Mapping[str, Any]) -> Iterator[_Given]:
    for name, value in arguments.items():
        if value is not None:
            yield _Given(name, value, f"--{name.replace('_', '-')}")


# -- one value ------------------------------------------------------------------------------------------


def _known(given: _Given) -> Key:
    if given.name not in KEYS:
        near = nearest(given.name, KEYS)
        hint = f"did you mean {near}?" if near else f"one of {', '.join(KEYS)}"
        raise error("bad_setting", f"{given.origin}: there is no key {given.name!r}", hint)
    return KEYS[given.name]


def _converted(key: Key, given: _Given) -> Any:
    """A value as its key's type: text from the environment and the command line, values from TOML."""
    try:
        value = _convert(key, given.value)
        Config(**{key.name: value})
    except QuothError as problem:
        raise error(problem.code, f"{given.origin}: {problem.text}", problem.hint) from None
    except (ValueError, KeyError, TypeError, OverflowError, RuntimeError):
        text = f"{given.origin}: {key.name} cannot be {quoted(given.value)}"
        raise error("bad_setting", text, f"it is {_KINDS[key.kind]}") from None
    return value


def _quantity(key: Key, value: Any) -> float | int:
    try:
        if key.kind is Span:
            return float(parse_span(value, infinity=key.infinity))
        return parse_size(value, infinity=None if key.infinity is None else int(key.infinity))
    except QuothError as problem:
        raise error(problem.code, f"{key.name}: {problem.text}", problem.hint) from None


def _convert(key: Key, value: Any) -> Any:
    """Raises ``bad_setting``, ValueError, KeyError, TypeError, OverflowError, or RuntimeError for the home of
    an unknown user."""
    kind = key.kind
    if kind in (Span, Size):
        return _quantity(key, value)
    if kind is bool:
        return value if isinstance(value, bool) else _TRUTH[str(value).lower()]
    if isinstance(value, bool):
        raise TypeError
    if kind is int:
        if int(value) != float(value):
            raise ValueError
        return int(value)
    if kind is Path:
        return given_path(value, key.name).expanduser()
    if kind is str:
        if not isinstance(value, str):
            raise TypeError
        return value
    parts = value.split(",") if isinstance(value, str) else value
    return tuple(str(part).strip() for part in parts if str(part).strip())


_KINDS: dict[Any, str] = {
    bool: "true or false",
    int: "a whole number",
    Path: "a path",
    str: "a text",
    Span: "a span of time",
    Size: "a size",
    tuple[str, ...]: "a list of texts",
}
_TRUTH = {
    "1": True,
    "true": True,
    "yes": True,
    "on": True,
    "0": False,
    "false": False,
    "no": False,
    "off": False,
}
