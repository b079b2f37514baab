"""Reports the windows of topics as they end, each once.

Events with times of their own need a watermark: a guess how late one may come, for which windows stay open.
Here a record's pointer is its time, and pointers only rise. Once a topic has a record behind a window, no
record can come into the window any more, and its statistics are final. So the only state is a position in
each topic, which is always the beginning of a window. The last window of a topic is reported when a later
record comes.

    <checkpoint>/_stats.json     {"stats": 1, "looks": 17, "width": 60000000, "out": ..., "offset": {...}}

The result of a look is stored under its number, and then the checkpoint is replaced. After a crash in
between, the next look has the same number and replaces the result: so each window is stored once.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from quoth.client import Client
from quoth.filelock import FileLock
from quoth.message import Gap
from quoth.spark.atomic_files import AtomicFile, make_directory
from quoth.spark.source.offsets import Offset, TopicPosition
from quoth.spark.source.ranges import named
from quoth.spark.statistics.survey import Survey, SurveyRange, survey
from quoth.spark.workers import Workers
from quothwire.closing import Closeable
from quothwire.errors import error

NAME = "_stats.json"
VERSION = 1

Keep = Callable[[int, Survey], None]
"""Stores the result of a look under its number; the same number replaces the result."""


class StatsCheckpoint(Closeable):
    """The positions in topics up to which windows are reported. Close it.

    directory: created if need be; None for a checkpoint in memory. settings: must be the same in all runs.
    Raises `Conflict` ``locked`` while another program has it, `RequestError` ``bad_request`` for other
    settings, `Damaged`, OSError.
    """

    def __init__(self, directory: Path | None, settings: dict[str, Any]) -> None:
        self.looks = 0
        self.positions: dict[str, TopicPosition] = {}
        self.is_new = True
        self._path = directory / NAME if directory else None
        self._settings = settings
        self._lock: FileLock | None = None
        if directory is not None:
            make_directory(directory)
            self._lock = FileLock(directory / NAME)
            with self._lock.opening():
                self._load(directory / NAME)

    def close(self) -> None:
        """Release the lock. Does nothing the second time."""
        if self._lock is not None:
            self._lock.release()

    def save(self) -> None:
        """Write it, durably."""
        if self._path is not None:
            content = {"stats": VERSION, "looks": self.looks, **self._settings}
            content["offset"] = Offset(self.positions).to_json()
            with AtomicFile(self._path.parent, NAME) as new:
                new.file.write(json.dumps(content).encode())
                new.keep(self._path)
        self.is_new = False

    def _load(self, path: Path) -> None:
        try:
            content = json.loads(path.read_bytes())
            if content["stats"] != VERSION:
                raise ValueError
            self.looks = int(content["looks"])
            self.positions = dict(Offset.from_json(content["offset"]).topics)
        except FileNotFoundError:
            return
        except (KeyError, TypeError, ValueError):
            text = f"{path} is no checkpoint of this job"
            raise error("damaged", text, "begin with another one; nothing was changed") from None
        for name, value in self._settings.items():
            if content.get(name) != value:
                text = f"the checkpoint {path.parent} was begun with {name} {content.get(name)}, not {value}"
                raise error("bad_request", text, "keep it so, or begin with another checkpoint")
        self.is_new = False


class Follower:
    """Computes the windows of topics that have ended. Belongs to one thread.

    topics: names, and patterns such as ``orders.*``; topics that come later are read from their beginning.
    width: of a window, in microseconds. since: the pointer at which a new checkpoint begins.
    """

    def __init__(
        self,
        broker: Client,
        workers: Workers,
        topics: str | Iterable[str],
        width: int,
        checkpoint: StatsCheckpoint,
        keep: Keep,
        since: int = 0,
    ) -> None:
        self._broker = broker
        self._workers = workers
        self._topics = [topics] if isinstance(topics, str) else list(topics)
        self._width = width
        self._checkpoint = checkpoint
        self._keep = keep
        self._since = since

    def look(self) -> Survey | None:
        """Compute and store the windows that have ended since the last look; None if there are none.

        Raises as `survey`, and as `Client.topic` for topics that do not exist.
        """
        found, gaps = self._ended()
        if not found:
            return None
        seen = survey(self._broker, self._workers, found, self._width)
        seen = seen._replace(gaps=[*gaps, *seen.gaps])
        self._keep(self._checkpoint.looks, seen)
        self._checkpoint.positions |= seen.reached
        self._checkpoint.looks += 1
        self._checkpoint.save()
        return seen

    def _ended(self) -> tuple[list[SurveyRange], list[Gap]]:
        """The ranges whose windows have ended, and a gap for each topic that was created again."""
        ranges, gaps = [], []
        for topic in named(self._broker, self._topics):
            info = self._broker.topic(topic)
            known = self._checkpoint.positions.get(topic)
            after, ordinal = max(0, self._since - 1), -1
            if known is not None:
                same = known.log == info.log
                after, ordinal = (known.next - 1, known.ordinal) if same else (0, 0)
            until = info.last // self._width * self._width - 1
            if until > after:
                ranges.append(SurveyRange(topic, after, until, ordinal))
                if known is not None and known.log != info.log:
                    gaps.append(Gap(topic, known.next - 1, info.first, -1, "recreated"))
        return ranges, gaps
