"""The configuration: one frozen tree, and what there is to know of each key in one place.

`quothd --help`, `quoth serve --help` and the example file are made from this; `sources` reads it.
"""

# ruff: noqa: RUF009  # what stands behind = makes a field

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, NamedTuple, get_type_hints

from quothlog import LogOptions
from quothwire.batch import BATCH_BYTES_MAX
from quothwire.errors import error
from quothwire.settings import DURABILITIES, TopicSettings
from quothwire.text.quantity import format_size, format_span

PORT_MAX = 65_534
"""The one above it is for the announcements."""
LOG_LEVELS = ("debug", "info", "warning", "error")
LOG_FORMATS = ("text", "json")
SECONDS_MAX = 1e9
"""Thirty years stand for "never": a time that is infinite cannot be waited for."""
NUMBER_MAX = 2**62
"""libzmq counts in 63 bits and a sign."""

Span = Annotated[float, "span"]
"""Seconds: in a file and on the command line 7d, 1h30m, 500ms or a number."""
Size = Annotated[int, "size"]
"""Bytes: in a file and on the command line 1GiB, 10MB or a number."""


class Key(NamedTuple):
    """What there is to know of a key.

    group: what it has to do with. help: what it is; a quantity is printed and read with its unit. why: the
    reason for its default. live: it may change while the broker runs. least: the smallest number. choices:
    the texts, if only some will do. infinity: the number that ``infinity`` stands for; None if the key has to
    be finite.
    """

    name: str
    kind: Any
    default: Any
    group: str
    help: str
    why: str
    live: bool
    least: float | None
    choices: tuple[str, ...]
    infinity: int | float | None

    @property
    def option(self) -> str:
        """The key as an argument."""
        return f"--{self.name.replace('_', '-')}"

    @property
    def metavar(self) -> str:
        """What help shows as the option's value: ``SPAN`` and ``SIZE`` take units."""
        return {Span: "SPAN", Size: "SIZE", int: "N"}.get(self.kind, "VALUE")

    @property
    def summary(self) -> str:
        """What it is, and its default."""
        return f"{self.help} (default: {self.words(self.default)})"

    def words(self, value: Any) -> str:
        """A value for people: ``7 days``, ``64 MiB``, ``infinity``, ``yes``."""
        if isinstance(value, bool):
            return "yes" if value else "no"
        if self.kind in (Span, Size):
            return "infinity" if value == self.infinity else self.unit_words(value)
        shown = ",".join(value) if isinstance(value, tuple) else str(value)
        return shown or "none"

    def unit_words(self, number: float) -> str:
        """A number with the unit that it has as a value of this key."""
        if self.kind is Span:
            return format_span(number)
        return format_size(number) if self.kind is Size else str(number)


def _key(
    group: str,
    default: Any,
    about: str,
    why: str,
    *,
    live: bool = True,
    least: float | None = None,
    choices: tuple[str, ...] = (),
    infinity: float | None = None,
) -> Any:
    told = {"group": group, "help": about, "why": why, "live": live, "least": least, "choices": choices}
    return field(default=default, metadata=told | {"infinity": infinity})


_place = partial(_key, "Where the data is, and who reaches the broker", live=False)
_topic = partial(_key, "What a new topic gets; those that exist keep what they have")
_disk = partial(_key, "Between memory and disk")
_life = partial(_key, "The life of a topic")
_limit = partial(_key, "Limits: what clients can make the broker hold")
_check = partial(_key, "Looking through what nobody reads")
_words = partial(_key, "What the daemon says on stderr; inside a program, logging is the program's")


@dataclass(frozen=True, slots=True)
class Config:
    """Everything that can be set for one broker. 0 stands for "no limit" where a limit may be absent.

    Times are seconds, sizes bytes. `KEYS` tells what each key is and why its default is what it is. A value
    that will not do raises `RequestError` ``bad_setting``.
    """

    dir: Path = _place(
        Path("quoth-data"),
        "The data directory; it is made if it does not exist.",
        "Below the directory in which the daemon is started: nothing has to be set up to try it.",
    )
    host: str = _place(
        "127.0.0.1", "The address to listen on; empty: none.", "Loopback: nobody else reaches it unasked."
    )
    port: int = _place(
        5555,
        "The port; announcements are on the next one; 0: any free ones.",
        "What clients try when nothing else is said.",
    )
    listen: tuple[str, ...] = _place(
        (),
        "Further endpoints, a list or separated by commas: ipc:///run/quoth/quoth.",
        "One socket is enough for most; ipc saves a local client the way through TCP.",
    )
    insecure: bool = _place(
        False,
        "Allow addresses that other machines can reach; every program that reaches them may do anything.",
        "There are no keys: whoever opens the broker to a network has to say so.",
    )

    auto_create: bool = _topic(
        True,
        "Let the first publish make a topic.",
        "Nobody has to ask first; to be switched off where a mistyped name must not make one.",
    )
    durability: str = _topic(
        "written",
        "What an acknowledgement means: written or synced.",
        "Written survives the death of the process, synced a loss of power, for one fsync more.",
        choices=DURABILITIES,
    )
    max_age: Span = _topic(
        0.0,
        "Age above which records are removed; infinity: never.",
        "Without a limit nothing is removed.",
        infinity=0,
    )
    max_bytes: Size = _topic(
        0,
        "Size of a topic above which its oldest records are removed; infinity: never.",
        "Without a limit nothing is removed.",
        infinity=0,
    )
    size_limit: Size = _topic(
        64 * 2**20,
        "Size at which a segment is sealed.",
        "300 segments are 20 GB, and one is walked in 15 ms.",
    )
    count_limit: int = _topic(
        0, "Records at which a segment is sealed; 0: no limit.", "Its bytes say more of what it costs."
    )
    age_limit: Span = _topic(
        0.0,
        "Age at which a segment is sealed; infinity: no limit.",
        "Only who removes by age needs it.",
        infinity=0,
    )

    sync_interval: Span = _disk(
        0.05,
        "Time between two fsyncs of a topic that is written to.",
        "A loss of power takes at most what came in this time, and one fsync.",
        least=0.001,
    )
    unsynced_bytes_max: Size = _disk(
        64 * 2**20,
        "Size of unsynced records above which writers wait.",
        "What a loss of power can take from a topic, however slow the disk is.",
        least=BATCH_BYTES_MAX,
        infinity=NUMBER_MAX,
    )
    buffer_count_max: int = _disk(
        100_000, "Records not yet synced above which writers wait.", "The same for small records.", least=1
    )
    disk_free_min: Size = _disk(
        64 * 2**20,
        "Free space on the disk below which writing stops.",
        "Reading, retention and trimming need some of it to go on.",
        least=0,
    )

    staged_bytes_max: Size = _disk(
        16 * 2**30,
        "Size of the records that a topic may stage for transactions.",
        "What nobody publishes must not fill the disk.",
        least=BATCH_BYTES_MAX,
        infinity=NUMBER_MAX,
    )
    staged_max_age: Span = _disk(
        86_400.0,
        "Time since a transaction's last batch after which its staged records are removed.",
        "A day: an application that died leaves nothing for longer, one that was stopped overnight goes on.",
        least=0.01,
    )

    check_interval: Span = _life(
        0.5,
        "Time between two checks of what a topic's retention removes.",
        "Retention is late by no more than this.",
        least=0.01,
    )
    worker_timeout: Span = _life(
        1.0,
        "Time without a request after which a topic hibernates.",
        "Asleep it costs 2 KB, no thread and no file; waking takes a millisecond.",
        least=0.01,
    )
    recovering_after: Span = _life(
        1.0,
        "Time after which a read of a topic that is being opened is answered.",
        "It is told how far that is, instead of nothing.",
        least=0,
    )
    stop_timeout: Span = _life(
        30.0,
        "Time that stopping may take.",
        "Then the daemon ends with what is synced, and names the topics of which not all is.",
        least=0,
    )

    workers_max: int = _limit(
        256,
        "Topics that are active at once.",
        "Threads and open logs: three descriptors each fit into the usual 1,024.",
        least=1,
    )
    topics_max: int = _limit(
        100_000, "Topics that the broker takes.", "Each costs 2 KB of memory and five files.", least=1
    )
    topic_requests_max: int = _limit(
        1_024,
        "Requests of one topic in work; above it the answer is busy.",
        "A queue that is longer only makes everybody wait longer.",
        least=1,
    )
    request_bytes_max: Size = _limit(
        256 * 2**20,
        "Size of all requests in work; above it the answer is busy.",
        "The memory that clients can fill.",
        least=BATCH_BYTES_MAX,
        infinity=NUMBER_MAX,
    )
    waits_max: int = _limit(
        100_000, "Requests that wait for records at once.", "Each costs about 0.8 KB.", least=1
    )
    frame_bytes_max: Size = _limit(
        BATCH_BYTES_MAX + 2**20,
        "Size of the largest frame that is taken.",
        "A batch and some: libzmq cuts a connection before it takes memory for more.",
        least=1_024,
        live=False,
    )

    scrub_interval: Span = _check(
        86_400.0,
        "Time between two checks of all sealed segments; infinity: never.",
        "A day: damage is found while there are still copies.",
        least=0,
        infinity=0,
    )
    scrub_rate: Size = _check(
        16 * 2**20,
        "Data that these checks read per second.",
        "A tenth of a slow disk; a terabyte takes 18 hours.",
        least=1,
        infinity=NUMBER_MAX,
    )

    log_level: str = _words(
        "info",
        f"How much is said: {', '.join(LOG_LEVELS)}.",
        "Info tells of starts, stops and what was removed; debug of every topic that wakes.",
        choices=LOG_LEVELS,
    )
    log_format: str = _words(
        "text",
        "How it is said: text for people, or json, one object a line.",
        "In both a line is one event.",
        choices=LOG_FORMATS,
    )

    def __post_init__(self) -> None:
        for key in KEYS.values():
            _check_range(key, getattr(self, key.name))
        if not 0 <= self.port <= PORT_MAX:
            raise error("bad_setting", f"port is 0 to {PORT_MAX}, not {self.port}")
        self.topic_settings()

    def topic_settings(self) -> TopicSettings:
        """The settings that a new topic gets."""
        return TopicSettings(
            durability=self.durability,
            max_age=self.max_age,
            max_bytes=self.max_bytes,
            size_limit=self.size_limit,
            count_limit=self.count_limit,
            age_limit=self.age_limit,
        )

    def log_options(self, settings: TopicSettings, *, keep_all: bool = False) -> LogOptions:
        """The options of a topic's log. keep_all: its settings are damaged, so nothing may be removed."""
        return LogOptions(
            size_limit=settings.size_limit,
            count_limit=settings.count_limit,
            age_limit=settings.age_limit,
            max_age=0.0 if keep_all else settings.max_age,
            max_bytes=0 if keep_all else settings.max_bytes,
            synced_reads=settings.durability == "synced",
            disk_free_min=self.disk_free_min,
            staged_bytes_max=self.staged_bytes_max,
            staged_max_age=self.staged_max_age,
        )

    def differing(self, other: Config) -> tuple[str, ...]:
        """The names of the keys that differ from those of another configuration."""
        return tuple(name for name in KEYS if getattr(self, name) != getattr(other, name))


def _check_range(key: Key, value: Any) -> None:
    if key.choices and value not in key.choices:
        raise error("bad_setting", f"{key.name} is {' or '.join(key.choices)}, not {value!r}")
    if key.least is None:
        return
    highest = SECONDS_MAX if isinstance(value, float) else NUMBER_MAX
    if not key.least <= value <= highest:
        upward = f" and at most {key.unit_words(highest)}" if value > key.least else ""
        raise error(
            "bad_setting", f"{key.name} is at least {key.unit_words(key.least)}{upward}, not {value!r}"
        )


def _keys() -> Mapping[str, Key]:
    kinds = get_type_hints(Config, include_extras=True)
    keys = [Key(one.name, kinds[one.name], one.default, **one.metadata) for one in fields(Config)]
    return MappingProxyType({key.name: _with_infinity(key) for key in keys})


def _with_infinity(key: Key) -> Key:
    """A time that has no smaller number for it may be as long as can be waited for."""
    return key._replace(infinity=SECONDS_MAX) if key.kind is Span and key.infinity is None else key


KEYS: Mapping[str, Key] = _keys()
"""Every key by its name, in the order of the groups."""
