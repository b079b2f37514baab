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

from quoth.client import Client
from quoth.filelock import FileLock
from quoth.message import Gap
from quoth.spark.atomic_files import AtomicFile, make_directory
from quoth.spark.source.offset_planner import Offset, TopicPosition
from quoth.spark.source.ranges import named
from quoth.spark.statistics.survey import Survey, SurveyRange, survey
from quoth.spark.workers import Workers
from quothwire.closing import Closeable
from quothwire.errors import error

NAME = "_stats.json"
VERSION = 1

Keep = Callable[[int, Survey], None]
"""Stores the result of a look under its number; the same number replaces the result."""


class Follower(Closeable):
    """Computes the windows of topics that have ended, and remembers up to where. Belongs to one thread.

    directory: of the checkpoint, created if need be; None for one in memory. topics: names, and patterns such
    as ``orders.*``; topics that come later are read from their beginning. width: of a window, in
    microseconds. out: where the caller stores results; width and out must be the same in all runs. since: the
    pointer at which a new checkpoint begins. is_new: there was no checkpoint.

    Close it. Raises `Conflict` ``locked`` while another program has the checkpoint, `RequestError`
    ``bad_request`` for other settings, `Damaged`, OSError.
    """

    def __init__(
        self, directory: Path | None, topics: str | Iterable[str], width: int, out: str | None, since: int = 0
    ) -> None:
        self.is_new = True
        self._looks = 0
        self._positions: dict[str, TopicPosition] = {}
        self._topics = [topics] if isinstance(topics, str) else list(topics)
        self._width = width
        self._settings = {"width": width, "out": out}
        self._since = since
        self._path = directory / NAME if directory else None
        self._lock: FileLock | None = None
        if self._path is not None:
            make_directory(self._path.parent)
            self._lock = FileLock(self._path)
            with self._lock.opening():
                self._load(self._path)

    def close(self) -> None:
        """Release the lock. Does nothing the second time."""
        if self._lock is not None:
            self._lock.release()

    def save(self) -> None:
        """Write the checkpoint, durably."""
        if self._path is not None:
            offset = Offset(self._positions).to_json()
            content = {"stats": VERSION, "looks": self._looks, **self._settings, "offset": offset}
            with AtomicFile(self._path.parent, NAME) as new:
                new.file.write(json.dumps(content).encode())
                new.keep(self._path)
        self.is_new = False

    def look(self, broker: Client, workers: Workers, keep: Keep, key: str | None = None) -> Survey | None:
        """Compute and store the windows that have ended since the last look; None if there are none.

        key: the path of the key file of the tasks. Raises as `survey`, and as `Client.topic` for topics that
        do not exist.
        """
        found, gaps = self._ended(broker)
        if not found:
            return None
        seen = survey(broker, workers, found, self._width, key)
        seen = seen._replace(gaps=[*gaps, *seen.gaps])
        keep(self._looks, seen)
        self._positions |= seen.reached
        self._looks += 1
        self.save()
        return seen

    def _load(self, path: Path) -> None:
        try:
            content = json.loads(path.read_bytes())
            if content["stats"] != VERSION:
                raise ValueError
            self._looks = int(content["looks"])
            self._positions = dict(Offset.from_json(content["offset"]).topics)
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

    def _ended(self, broker: Client) -> tuple[list[SurveyRange], list[Gap]]:
        """The ranges whose windows have ended, and a gap for each topic that was created again."""
        ranges, gaps = [], []
        for topic in named(broker, self._topics):
            info = broker.topic(topic)
            known = self._positions.get(topic)
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
