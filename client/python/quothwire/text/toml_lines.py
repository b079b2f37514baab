"""Finds the line of every key of a TOML document, which `tomllib` does not tell."""

from __future__ import annotations

import re

Path = tuple[str | int, ...]
"""The keys, and the numbers in arrays, that lead to a value: ``("rule", 0, "match", "key")``."""

_SPACE = re.compile(r"(?:[ \t\r\n]|#[^\n]*)+")
_STRING = re.compile(r'"""(?:\\.|[^\\])*?"{3,5}|\'\'\'.*?\'{3,5}|"(?:\\.|[^"\\])*"|\'[^\']*\'', re.DOTALL)
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_SCALAR = re.compile(r"[^,\]}\n#]+")
_ESCAPED = re.compile(r"\\(?:u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.))", re.DOTALL)
_ESCAPES = {"b": "\b", "t": "\t", "n": "\n", "f": "\f", "r": "\r"}


def lines_of(text: str) -> dict[Path, int]:
    """Return the line of each key, table and element. text: a document that `tomllib` accepts."""
    return _Scan(text).document()


class _Scan:
    """One pass over a document. The document is valid, so the scan only has to find what is where."""

    def __init__(self, text: str) -> None:
        self._text = text.replace("\r\n", "\n")
        self._at = 0
        self._line = 1
        self._lines: dict[Path, int] = {}
        self._tables: dict[Path, int] = {}
        """The number of elements of each array of tables."""

    def document(self) -> dict[Path, int]:
        """Scan all statements."""
        table: Path = ()
        seen = -1
        while self._skip_space() and self._at > seen:
            seen = self._at
            if self._take("[["):
                table = self._table(self._keys())
                self._take("]]")
            elif self._take("["):
                table = self._resolved(self._keys())
                self._take("]")
            else:
                self._statement(table)
        return self._lines

    def _statement(self, table: Path) -> None:
        """Scan a key and its value."""
        line = self._line
        path = table
        for key in self._keys():
            path = (*path, key)
            self._lines.setdefault(path, line)
        self._take("=")
        self._skip_space()
        self._value(path)

    def _value(self, path: Path) -> None:
        if self._take("["):
            number = 0
            while self._skip_space() and not self._take("]"):
                self._note((*path, number))
                self._value((*path, number))
                number += 1
                self._skip_space()
                self._take(",")
        elif self._take("{"):
            while self._skip_space() and not self._take("}"):
                self._statement(path)
                self._skip_space()
                self._take(",")
        elif self._match(_STRING) is None:
            self._match(_SCALAR)

    def _table(self, keys: list[str]) -> Path:
        """Return the path of the next element of an array of tables."""
        array = (*self._resolved(keys[:-1]), keys[-1])
        number = self._tables[array] = self._tables.get(array, -1) + 1
        self._note(array)
        self._note((*array, number))
        return (*array, number)

    def _resolved(self, keys: list[str]) -> Path:
        """Return the path of a table's header, which means the last element of an array of tables."""
        path: Path = ()
        for key in keys:
            path = (*path, key)
            self._note(path)
            if path in self._tables:
                path = (*path, self._tables[path])
        return path

    def _keys(self) -> list[str]:
        """Take a dotted key."""
        keys = []
        while True:
            self._skip_space()
            bare = self._match(_BARE_KEY)
            keys.append(bare if bare is not None else _unquoted(self._match(_STRING) or ""))
            self._skip_space()
            if not self._take("."):
                return keys

    def _note(self, path: Path) -> None:
        self._lines.setdefault(path, self._line)

    def _skip_space(self) -> bool:
        """Skip blanks, newlines and comments; False at the end."""
        self._match(_SPACE)
        return self._at < len(self._text)

    def _take(self, expected: str) -> bool:
        found = self._text.startswith(expected, self._at)
        self._at += len(expected) if found else 0
        return found

    def _match(self, pattern: re.Pattern[str]) -> str | None:
        found = pattern.match(self._text, self._at)
        if found is None:
            return None
        self._at = found.end()
        self._line += found[0].count("\n")
        return found[0]


def _unquoted(key: str) -> str:
    if key.startswith("'"):
        return key[1:-1]
    return _ESCAPED.sub(_unescaped, key[1:-1])


def _unescaped(found: re.Match[str]) -> str:
    digits = found[1] or found[2]
    return chr(int(digits, 16)) if digits else _ESCAPES.get(found[3], found[3])
