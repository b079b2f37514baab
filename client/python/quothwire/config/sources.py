"""Reads a configuration: arguments win over the environment, that over the file, that over the defaults.

The file is TOML; without its path none is read. The error for an unknown key suggests the right one.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, NamedTuple

from quothwire.config.config_key import C, ConfigKey, File, Mode, Schema, Size, Span
from quothwire.errors import QuothError, error, quoted
from quothwire.text.paths import given_path
from quothwire.text.quantity import parse_size, parse_span
from quothwire.text.suggestion import nearest
from quothwire.text.variables import is_of_kubernetes


@dataclass(frozen=True, slots=True)
class Sourced(Generic[C]):
    """A configuration with the origins of its values.

    origins: the argument, the variable or FILE:LINE, by the key; keys with defaults have none.
    """

    schema: Schema[C]
    config: C
    origins: Mapping[str, str]

    def origin(self, key: str) -> str:
        """Return the origin of a key's value."""
        return self.origins.get(key, "default")

    def changes(self) -> tuple[str, ...]:
        """Return the keys whose values are not the defaults."""
        return self.schema.differing(self.config, self.schema.kind())


class _GivenValue(NamedTuple):
    """A value from a source. name: the key, or as the source has it if there is no such key.

    table: that of the file which it is in, "" for none. is_decimal: it is a number as people write it.
    folder: where relative paths of files begin; None: in the working directory. may_be_empty: an empty path
    of a file stands for none; elsewhere it comes from a variable that was not set.
    """

    name: str
    value: Any
    origin: str
    table: str = ""
    is_decimal: bool = False
    folder: Path | None = None
    may_be_empty: bool = False


def read(
    schema: Schema[C],
    arguments: Mapping[str, Any],
    environment: Mapping[str, str] = os.environ,
    file: Path | None = None,
) -> Sourced[C]:
    """Read a configuration from all sources. Raises `RequestError` ``bad_setting`` with the origin.

    arguments: values by key; None stands for an argument that was not given.
    """
    values: dict[str, Any] = {}
    origins: dict[str, str] = {}
    from_file = () if file is None else _from_file(schema, file)
    from_arguments = [
        _GivenValue(name, value, f"--{name.replace('_', '-')}")
        for name, value in arguments.items()
        if value is not None
    ]
    for given in (*from_file, *_from_environment(schema, environment), *from_arguments):
        key = _key_of(schema, given)
        _check_table(key, given)
        values[key.name] = _value_of(schema, key, given)
        origins[key.name] = given.origin
    return Sourced(schema, schema.kind(**values), origins)


# -- the sources ----------------------------------------------------------------------------------------


def _from_file(schema: Schema[Any], file: Path) -> Iterator[_GivenValue]:
    text = _text_of(file)
    try:
        content = tomllib.loads(text)
    except tomllib.TOMLDecodeError as problem:
        hint = 'a line is KEY = VALUE, text in "..."'
        raise error("bad_setting", f"{file} is no TOML: {problem}", hint) from None
    except (ValueError, RecursionError):  # valid TOML with thousands of digits or brackets
        text = f"{file} holds a number or a nested list that is too long to be read"
        raise error("bad_setting", text, "no key takes one: correct the file") from None
    for name, value in content.items():
        table = name if name in schema.tables and isinstance(value, dict) else ""
        for inner, one in value.items() if table else [(name, value)]:
            key = schema.name_in(table, inner)
            if table and (key in content or (key != inner and key in value)):
                raise error("bad_setting", f"{file}: {key} is there twice, also in [{table}]", "remove one")
            origin = f"{file}{_line_of(inner, text, table)}"
            is_decimal = isinstance(one, int)
            yield _GivenValue(key, one, origin, table, is_decimal, file.parent, may_be_empty=True)


def _text_of(file: Path) -> str:
    try:
        return file.read_bytes().decode()
    except OSError as problem:
        hint = "is the path right? without --config no file is read"
        raise error("bad_setting", f"{file}: {problem.strerror}", hint) from None
    except UnicodeDecodeError as problem:
        line = problem.object.count(b"\n", 0, problem.start) + 1
        raise error("bad_setting", f"{file}:{line}: a byte that is not UTF-8", "TOML is UTF-8") from None


def _line_of(name: str, text: str, table: str) -> str:
    """Find the line of a key; returns ":LINE", or "" if the way it is written hides it.

    table: that of the key, "" for none: a key of another place may have the same name.
    """
    header = table and re.search(rf"""^[ \t]*\[ *["']?{re.escape(table)}["']? *\]""", text, re.MULTILINE)
    key = re.compile(rf"""^[ \t]*(?:\[ *)?["']?{re.escape(name)}["']?[ \t]*[=.\]]""", re.MULTILINE)
    written = key.search(text, header.end() if header else 0)
    return f":{text.count(chr(10), 0, written.start()) + 1}" if written else ""


def _from_environment(schema: Schema[Any], environment: Mapping[str, str]) -> Iterator[_GivenValue]:
    for name in schema.keys:
        value = environment.get(named := schema.variable(name))
        if value is not None and not is_of_kubernetes(named, value):
            yield _GivenValue(name, value, named)


# -- one value ------------------------------------------------------------------------------------------


def _key_of(schema: Schema[Any], given: _GivenValue) -> ConfigKey:
    if given.name not in schema.keys:
        in_table = [key.name_in_table for key in schema.keys.values() if key.table == given.table]
        tables = [f"[{table}]" for table in schema.tables]
        near = nearest(given.name, [*in_table, *schema.keys, *tables])
        hint = f"did you mean {near}?" if near else f"one of {', '.join(schema.keys)}"
        raise error("bad_setting", f"{given.origin}: there is no key {given.name!r}", hint)
    return schema.keys[given.name]


def _check_table(key: ConfigKey, given: _GivenValue) -> None:
    """Raise ``bad_setting`` for a key in a table of others. All keys may stand above the tables, too."""
    if given.table not in ("", key.table):
        text = f"{given.origin}: {key.name} is not in the table [{given.table}]"
        raise error("bad_setting", text, f"write it above the line [{given.table}]")


def _value_of(schema: Schema[Any], key: ConfigKey, given: _GivenValue) -> Any:
    """Convert a value and check its range. Raises ``bad_setting`` with its origin."""
    try:
        if key.kind is Mode and given.is_decimal:  # 27 has other bits than "0027"
            raise TypeError
        if key.kind is File and given.value == "" and not given.may_be_empty:
            given_path("", key.name)  # from a variable that was not set: a daemon would start without keys
        value = _convert(key, given.value)
        if key.kind is File and value and given.folder is not None:
            value = str(given.folder / value)
        schema.kind(**{key.name: value})
    except QuothError as problem:
        raise error(problem.code, f"{given.origin}: {problem.text}", problem.hint) from None
    except (ValueError, KeyError, TypeError, OverflowError, RuntimeError):
        text = f"{given.origin}: {key.name} cannot be {quoted(given.value)}"
        raise error("bad_setting", text, f"it is {_KINDS[key.kind]}") from None
    return value


def _convert(key: ConfigKey, value: Any) -> Any:
    """Convert text, or a value of TOML, to the type of a key.

    Raises ``bad_setting``, ValueError, KeyError, TypeError, OverflowError, or RuntimeError for the home
    directory of an unknown user.
    """
    kind = key.kind
    if kind in (Span, Size):
        return _parse_quantity(key, value)
    if kind is bool:
        return value if isinstance(value, bool) else _BOOLEANS[str(value).lower()]
    if isinstance(value, bool):
        raise TypeError
    if kind is Mode:
        return value if isinstance(value, int) else int(value, 8)
    if kind is File and value:
        return str(given_path(value, key.name).expanduser())
    if kind is int:
        if int(value) != float(value):
            raise ValueError
        return int(value)
    if kind is Path:
        return given_path(value, key.name).expanduser()
    if kind in (str, File):
        if not isinstance(value, str):
            raise TypeError
        return value
    parts = value.split(",") if isinstance(value, str) else value
    return tuple(str(part).strip() for part in parts if str(part).strip())


def _parse_quantity(key: ConfigKey, value: Any) -> float | int:
    try:
        if key.kind is Span:
            return float(parse_span(value, infinity=key.infinity))
        return parse_size(value, infinity=None if key.infinity is None else int(key.infinity))
    except QuothError as problem:
        raise error(problem.code, f"{key.name}: {problem.text}", problem.hint) from None


_KINDS: dict[Any, str] = {
    bool: "true or false",
    int: "a whole number",
    Path: "a path",
    str: "a text",
    File: "a path",
    Mode: 'octal digits in quotes, like "0600"',
    Span: "a span of time",
    Size: "a size",
    tuple[str, ...]: "a list of texts",
}
_TRUE = ("1", "true", "yes", "on")
_FALSE = ("0", "false", "no", "off")
_BOOLEANS = dict.fromkeys(_TRUE, True) | dict.fromkeys(_FALSE, False)
