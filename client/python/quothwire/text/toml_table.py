"""Tables of a TOML document whose values are checked as they are taken. Every error names the line."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from quothwire.errors import QuothError, error, quoted
from quothwire.text.quantity import parse_size, parse_span
from quothwire.text.suggestion import nearest
from quothwire.text.toml_lines import Path, lines_of

FILE_BYTES_MAX = 262_144
"""Longer than any list of rules that a person writes. The broker keeps every version of it."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class TomlTable:
    """One table of a document.

    origin: names the document in errors. lines: those of all paths of the document. path: that of this table.
    label: names the table in errors, the tables in it, too; empty: the line is enough.
    """

    origin: str
    lines: dict[Path, int]
    values: dict[str, Any]
    path: Path = ()
    asked: dict[str, None] = field(default_factory=dict)
    """The keys that were asked for, in this order: all that there may be."""
    label: str = ""

    def labelled(self, label: str) -> TomlTable:
        """Return this table with a label."""
        return replace(self, label=label)

    def wrong(self, name: str | None, problem: str, hint: str = "") -> QuothError:
        """Make the error for a key, or for the table itself, with its line."""
        return self._wrong(self.path if name is None else (*self.path, name), problem, hint)

    def has(self, name: str) -> bool:
        """Return True if the table has a key."""
        self.asked[name] = None
        return name in self.values

    def text(self, name: str, default: str | None = None) -> str:
        """Take a text that is not empty. Without a default the key is required."""
        value = self._value(name, default)
        if not isinstance(value, str) or not value:
            raise self.wrong(name, f"{name} is a text, not {quoted(value)}")
        return value

    def flag(self, name: str) -> bool:
        """Take true or false; without the key false."""
        value = self._value(name, False)
        if not isinstance(value, bool):
            raise self.wrong(name, f"{name} is true or false, not {quoted(value)}")
        return value

    def whole(self, name: str, default: int, low: int, high: int) -> int:
        """Take a whole number within its range."""
        value = self._value(name, default)
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise self.wrong(name, f"{name} is a whole number from {low} to {high:,}, not {quoted(value)}")
        return value

    def span(self, name: str, default: float, low: float, high: float) -> float:
        """Take a span of time, as seconds within a range."""
        seconds = self.convert(name, lambda value: parse_span(value, infinity=None), default)
        if not low <= seconds <= high:
            raise self.wrong(name, f"{name} is a span from {low:g} s to {high:,.0f} s, not {seconds:g} s")
        return seconds

    def size(self, name: str, default: int) -> int:
        """Take a size in bytes."""
        return self.convert(name, parse_size, default)

    def texts(self, name: str, *, may_be_empty: bool = False) -> tuple[str, ...]:
        """Take one text or a list of texts. Empty without the key, and with an empty list where it may be."""
        value = self._value(name, [])
        listed = value if isinstance(value, list) else [value]
        if name in self.values and not listed and not may_be_empty:
            raise self.wrong(name, f"{name} is an empty list")
        for number, one in enumerate(listed):
            if not isinstance(one, str) or not one:
                at = (*self.path, name, number) if isinstance(value, list) else (*self.path, name)
                raise self._wrong(at, f"{name} is a text or a list of texts, not {quoted(one)}")
        return tuple(listed)

    def each(self, name: str, convert: Callable[[str], T], *, may_be_empty: bool = False) -> tuple[T, ...]:
        """Take one text or a list of texts, and convert each. An error has the line of that text."""
        is_list = isinstance(self.values.get(name), list)
        return tuple(
            self._converted((*self.path, name, number) if is_list else (*self.path, name), name, convert, one)
            for number, one in enumerate(self.texts(name, may_be_empty=may_be_empty))
        )

    def convert(self, name: str, convert: Callable[[Any], T], default: T) -> T:
        """Take a value and convert it. An error of the conversion gets the line."""
        return self.required(name, convert) if self.has(name) else default

    def required(self, name: str, convert: Callable[[Any], T]) -> T:
        """Take a value that has to be there, and convert it as `convert` does."""
        return self._converted((*self.path, name), name, convert, self._value(name, None))

    def table(self, name: str) -> TomlTable:
        """Take a table; an empty one without the key."""
        value = self._value(name, {})
        if not isinstance(value, dict):
            raise self.wrong(name, f"{name} is a table, not {quoted(value)}")
        return self._inner((*self.path, name), value)

    def tables(self, name: str) -> Iterator[TomlTable]:
        """Take an array of tables."""
        value = self._value(name, [])
        if not isinstance(value, list) or not all(isinstance(one, dict) for one in value):
            raise self.wrong(name, f"{name} is an array of tables: [[{name}]] begins each of them")
        for number, one in enumerate(value):
            yield self._inner((*self.path, name, number), one)

    def finish(self) -> None:
        """Raise for a key that nothing has asked for."""
        for name in self.values:
            if name not in self.asked:
                near = nearest(name, self.asked)
                hint = f"did you mean {near}?" if near else f"one of {', '.join(self.asked)}"
                raise self.wrong(name, f"there is no key {name!r} here", hint)

    def _inner(self, path: Path, values: dict[str, Any]) -> TomlTable:
        return TomlTable(self.origin, self.lines, values, path, label=self.label)

    def _value(self, name: str, default: object) -> Any:
        if not self.has(name):
            if default is None:
                raise self.wrong(None, f"the key {name!r} is missing")
            return default
        return self.values[name]

    def _converted(self, at: Path, name: str, convert: Callable[[Any], T], value: Any) -> T:
        try:
            return convert(value)
        except QuothError as problem:
            raise self._wrong(at, f"{name}: {problem.text}", problem.hint) from None

    def _wrong(self, path: Path, problem: str, hint: str = "") -> QuothError:
        while path and path not in self.lines:
            path = path[:-1]
        label = f"{self.label}: " if self.label else ""
        return error(
            "bad_setting",
            f"{self.origin}:{self.lines.get(path, 1)}: {label}{problem}",
            hint or "correct this line of the file",
        )


def parse_document(text: str, origin: str, characters_max: int = FILE_BYTES_MAX) -> TomlTable:
    """Parse a document. Raises `RequestError` ``bad_setting`` with the line, also for a syntax error."""
    if len(text) > characters_max:
        raise error("bad_setting", f"{origin} has {len(text):,} characters, at most {characters_max:,}")
    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as problem:
        raise _syntax_error(text, origin, str(problem)) from None
    except (ValueError, RecursionError):  # valid TOML with thousands of digits or brackets
        hint = "no key takes one"
        raise error("bad_setting", f"{origin} holds a number or a list that is too long", hint) from None
    return TomlTable(origin, lines_of(text), values)


def _syntax_error(text: str, origin: str, problem: str) -> QuothError:
    """Make the error of text that is no TOML, from that of `tomllib`, which ends with the place."""
    said, _, place = problem.rpartition(" (at ")
    line = place.removeprefix("line ").partition(",")[0]
    if not line.isdigit():
        line = str(max(1, len(text.rstrip().splitlines())))  # at the end of the document
    return error(
        "bad_setting", f"{origin}:{line}: this is no TOML: {said}", 'a line is KEY = VALUE, text in "..."'
    )
