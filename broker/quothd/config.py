"""The configuration: one frozen tree, every key with its unit, its default and its reason.

An argument wins over the environment (``QUOTH_`` and the key in capitals), that over the TOML file, that over
the default. A key that does not exist is an error that suggests the right one.
"""

from __future__ import annotations

import difflib
import math
import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, get_type_hints

from quothlog import LogOptions
from quothwire.batch import BATCH_BYTES_MAX
from quothwire.errors import QuothError, error
from quothwire.settings import TopicSettings

ENVIRONMENT_PREFIX = "QUOTH_"


@dataclass(frozen=True, slots=True)
class Config:
    """Everything that can be set for one broker. 0 stands for "no limit" where a limit may be absent.

    dir: the data directory. host, port: where to listen; announcements are on port + 1; port 0 takes free
    ones. listen: further endpoints, like ipc:///run/quoth/quoth. insecure: allow an address that others can
    reach, without keys. auto_create: the first publish makes a topic. Times are seconds, sizes bytes.
    """

    dir: Path = Path("quoth-data")
    host: str = "127.0.0.1"
    port: int = 5555
    listen: tuple[str, ...] = ()
    insecure: bool = False
    auto_create: bool = True

    durability: str = "written"
    max_age: float = 0.0
    max_bytes: int = 0
    size_limit: int = 64 * 2**20
    count_limit: int = 0
    age_limit: float = 0.0

    sync_interval: float = 0.05
    """A loss of power takes at most what came in this time, and one fsync."""
    unsynced_bytes_max: int = 64 * 2**20
    buffer_count_max: int = 100_000
    """Records not yet synced; above it writers wait for an fsync."""
    check_interval: float = 0.5
    """How often an awake topic looks at its retention."""
    worker_timeout: float = 1.0
    """A topic without a request for this long hibernates."""
    workers_max: int = 256
    """Threads and open logs at once: 256 fit into the usual 1,024 descriptors with three each."""
    topics_max: int = 100_000
    """A topic costs 2 KB of memory and five files."""
    topic_requests_max: int = 1_024
    """Requests of one topic in work or in its queue; above it the answer is `busy`."""
    request_bytes_max: int = 256 * 2**20
    """Bytes of all requests in work: what clients can make the broker hold."""
    waits_max: int = 100_000
    frame_bytes_max: int = BATCH_BYTES_MAX + 2**20
    """libzmq cuts the connection of whoever sends a larger frame, before taking memory for it."""
    disk_free_min: int = 64 * 2**20
    """Writing stops before the disk is full; reading, retention and trimming go on."""
    recovering_after: float = 1.0
    """A read of a topic that takes longer to open is answered `recovering`."""
    stop_timeout: float = 30.0
    scrub_interval: float = 86_400.0
    """How often every sealed segment is read and checked, by a process of its own; 0: never."""
    scrub_rate: int = 16 * 2**20
    """Bytes a second that this reads: a tenth of a slow disk, a terabyte in 18 hours."""

    def __post_init__(self) -> None:
        for name, lowest in _LOWEST.items():
            value = getattr(self, name)
            highest = _SECONDS_MAX if isinstance(value, float) else math.inf
            if not lowest <= value <= highest:
                upward = f" and at most {highest:.0f}" if value > lowest else ""
                raise error("bad_setting", f"{name} is at least {lowest}{upward}, not {value!r}")
        if not 0 <= self.port <= 65_534:
            raise error("bad_setting", f"port is 0 to 65534, not {self.port}")
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
        )


KEYS: tuple[str, ...] = tuple(field.name for field in fields(Config))
_SECONDS_MAX = 1e9
"""Thirty years stand for "never": a time that is infinite cannot be waited for."""
_LOWEST: dict[str, float] = {
    "sync_interval": 0.001,
    "unsynced_bytes_max": BATCH_BYTES_MAX,
    "buffer_count_max": 1,
    "check_interval": 0.01,
    "worker_timeout": 0.01,
    "workers_max": 1,
    "topics_max": 1,
    "topic_requests_max": 1,
    "request_bytes_max": BATCH_BYTES_MAX,
    "waits_max": 1,
    "frame_bytes_max": 1_024,
    "disk_free_min": 0,
    "recovering_after": 0,
    "stop_timeout": 0,
    "scrub_interval": 0,
    "scrub_rate": 1,
}


def load(
    arguments: Mapping[str, Any], environment: Mapping[str, str] = os.environ, file: Path | None = None
) -> Config:
    """Put a configuration together. Raises `RequestError` ``bad_setting``, naming where it stood."""
    chosen: dict[str, Any] = {}
    if file is not None:
        for key, value in _read_toml(file).items():
            known = _known(key, str(file))
            chosen[known] = _converted(known, value, str(file))
    for key in KEYS:
        name = ENVIRONMENT_PREFIX + key.upper()
        if name in environment:
            chosen[key] = _converted(key, environment[name], name)
    for key, value in arguments.items():
        if value is not None:
            known = _known(key, "the arguments")
            chosen[known] = _converted(known, value, f"--{key.replace('_', '-')}")
    return Config(**chosen)


def _read_toml(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text())
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as problem:
        raise error("bad_setting", f"{file}: {problem}") from None


def _known(key: str, origin: str) -> str:
    if key not in KEYS:
        near = difflib.get_close_matches(key, KEYS, n=1)
        hint = f"did you mean {near[0]}?" if near else f"one of {', '.join(KEYS)}"
        raise error("bad_setting", f"{origin}: there is no key {key!r}", hint)
    return key


def _converted(key: str, value: Any, origin: str) -> Any:
    """A value as its key's type: text from the environment and the command line, values from TOML."""
    wanted = _TYPES[key]
    try:
        if wanted is bool:
            return value if isinstance(value, bool) else _TRUTH[str(value).lower()]
        if wanted is int and not isinstance(value, bool) and int(value) == float(value):
            return int(value)
        if wanted is float and not isinstance(value, bool):
            return float(value)
        if wanted is Path:
            return Path(value).expanduser()
        if wanted is str and isinstance(value, str):
            return value
        if wanted == tuple[str, ...]:
            parts = value.split(",") if isinstance(value, str) else value
            return tuple(str(part).strip() for part in parts if str(part).strip())
    except (ValueError, KeyError, TypeError, OverflowError, QuothError):
        pass
    kind = getattr(wanted, "__name__", str(wanted))
    raise error("bad_setting", f"{origin}: {key} cannot be {value!r}", f"it is a {kind}")


_TYPES: dict[str, Any] = get_type_hints(Config)
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
