"""The keys of a configuration: the type of each, its default, its text and its limits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import Field, field, fields
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Generic, NamedTuple, Protocol, TypeVar, get_type_hints

from quothwire.errors import error
from quothwire.text.quantity import format_size, format_span

SECONDS_MAX = 1e9
"""Thirty years stand for "never": no thread can wait for an infinite time."""
NUMBER_MAX = 2**62
"""libzmq counts in 63 bits and a sign."""

Span = Annotated[float, "span"]
"""Seconds; written as 7d, 1h30m, 500ms or a number."""
Size = Annotated[int, "size"]
"""Bytes; written as 1GiB, 10MB or a number."""
Mode = Annotated[int, "mode"]
"""Permission bits; written as octal digits in a text: "0600"."""
File = Annotated[str, "file"]
"""The path of a file; empty: none."""


class ConfigKey(NamedTuple):
    """One key of the configuration.

    group: its title in the example file. help: what it sets; a number is printed and read with its unit. why:
    the reason for its default. live: a reload applies it. least: the smallest number. choices: the permitted
    texts, empty if any will do. infinity: the number that ``infinity`` stands for, None if there is none.
    table: that of the file which has this key, "" if it is in none. A name that begins with that of its table
    is written without it there: ``poe_idle`` is ``idle`` in ``[poe]``.
    """

    name: str
    kind: Any
    default: Any
    group: str
    help: str
    why: str
    live: bool = True
    least: float | None = None
    choices: tuple[str, ...] = ()
    infinity: int | float | None = None
    table: str = ""

    @property
    def name_in_table(self) -> str:
        """The name by which its table has the key."""
        return self.name.removeprefix(f"{self.table}_") if self.table else self.name

    @property
    def option(self) -> str:
        """The key as an option of the command line."""
        return f"--{self.name.replace('_', '-')}"

    @property
    def metavar(self) -> str:
        """The option's value as help shows it: ``SPAN`` and ``SIZE`` take units."""
        return {Span: "SPAN", Size: "SIZE", int: "N", Mode: "MODE", File: "FILE"}.get(self.kind, "VALUE")

    @property
    def summary(self) -> str:
        """The text of `help` with the default."""
        return f"{self.help} (default: {self.words(self.default)})"

    def words(self, value: Any) -> str:
        """Format a value for people: ``7 days``, ``64 MiB``, ``infinity``, ``yes``."""
        if isinstance(value, bool):
            return "yes" if value else "no"
        if self.kind in (Span, Size):
            return "infinity" if value == self.infinity else self.unit_words(value)
        if self.kind is Mode:
            return f"{value:04o}"
        shown = ",".join(value) if isinstance(value, tuple) else str(value)
        return shown or "none"

    def unit_words(self, number: float) -> str:
        """Format a number with the unit of this key."""
        if self.kind is Span:
            return format_span(number)
        return format_size(number) if self.kind is Size else str(number)

    def check(self, value: Any) -> None:
        """Raise `RequestError` ``bad_setting`` for a value that is no choice, or out of range."""
        if self.choices and value not in self.choices:
            raise error("bad_setting", f"{self.name} is {' or '.join(self.choices)}, not {value!r}")
        if self.least is None:
            return
        highest = SECONDS_MAX if isinstance(value, float) else NUMBER_MAX
        if not self.least <= value <= highest:
            most = f" and at most {self.unit_words(highest)}" if value > self.least else ""
            text = f"{self.name} is at least {self.unit_words(self.least)}{most}, not {value!r}"
            raise error("bad_setting", text)


def described(group: str, default: Any, about: str, why: str, **others: Any) -> Any:
    """Make a field of the configuration.

    about: `ConfigKey.help`. others: fields of `ConfigKey` from `live` on.
    """
    return field(default=default, metadata={"group": group, "help": about, "why": why, **others})


class Configuration(Protocol):
    """A frozen dataclass whose fields are made by `described`. A wrong value raises ``bad_setting``."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]


C = TypeVar("C", bound=Configuration)


class Schema(Generic[C]):
    """The keys of one configuration, by name, in the order of the file: those in tables come last.

    kind: its class. prefix: that of its variables in the environment, followed by the key in capitals.
    """

    def __init__(self, kind: type[C], prefix: str) -> None:
        self.kind = kind
        self.prefix = prefix
        hints = get_type_hints(kind, include_extras=True)
        described_fields = sorted(fields(kind), key=lambda one: bool(one.metadata.get("table")))
        self.keys: Mapping[str, ConfigKey] = MappingProxyType(
            {one.name: _key_of(one, hints[one.name]) for one in described_fields}
        )
        self.tables = tuple(dict.fromkeys(key.table for key in self.keys.values() if key.table))

    def variable(self, key: str) -> str:
        """Return the variable of a key."""
        return self.prefix + key.upper()

    def name_in(self, table: str, written: str) -> str:
        """Return the name of the key that is written so in a table; table: "" for above all of them."""
        key = self.keys.get(f"{table}_{written}")
        return written if key is None or key.table != table else key.name

    def differing(self, one: C, other: C) -> tuple[str, ...]:
        """Return the names of the keys whose values differ between two configurations."""
        return tuple(name for name in self.keys if getattr(one, name) != getattr(other, name))


def _key_of(described_field: Field[Any], kind: Any) -> ConfigKey:
    infinity = SECONDS_MAX if kind is Span else None  # the longest time that a thread can wait
    about = {"infinity": infinity, **described_field.metadata}
    return ConfigKey(described_field.name, kind, described_field.default, **about)
