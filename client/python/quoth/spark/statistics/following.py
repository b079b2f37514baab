"""Following topics: their windows as they end, each once.

A stream of events that carry times of their own needs a watermark: a guess of how late one may come, and
windows that are kept open for so long. Here a record's pointer is its time, and pointers only rise. Once a
topic has a record behind a window, nothing can come into that any more: it is over, and what is told of it is
final. So there is no state but how far each topic was looked at, which is always where a window begins. The
price: the last window of a topic in which nothing happens any more is told when something does.

    <checkpoint>/_stats.json     {"stats": 1, "looks": 17, "width": 60000000, "out": ..., "offset": {...}}

A look is kept under its number and then the checkpoint is replaced. What dies in between looks again with the
same number, and replaces what it has kept: so each window is kept once.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from quoth.client import Client
from quoth.core.closeable import Closeable
from quoth.filelock import FileLock
from quoth.message import Gap
from quoth.spark.atomic_files import Draft, make_directory
from quoth.spark.source.offsets import Offset, Position
from quoth.spark.source.ranges import named
from quoth.spark.statistics.survey import Stretch, Survey, survey
from quoth.spark.workers import Workers
from quothwire.errors import error

NAME = "_stats.json"
VERSION = 1

Keep = Callable[[int, Survey], None]
"""Gets the number of a look and what it found; the same number again replaces what was kept before."""


class Checkpoint(Closeable):
    """How far topics were looked at, in a directory, which is made, or in memory only. To be closed.

    directory: None for memory. settings: what may not change from one run to the next. Raises `Conflict`
    ``locked`` while another one goes on with it, `RequestError` ``bad_request`` if it is of other settings,
    `Damaged`, OSError.
    """

    def __init__(self, directory: Path | None, settings: dict[str, Any]) -> None:
        self.looks = 0
        self.positions: dict[str, Position] = {}
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
        """Let others go on with it. Does nothing the second time."""
        if self._lock is not None:
            self._lock.release()

    def save(self) -> None:
        """Keep it, durably."""
        if self._path is not None:
            content = {"stats": VERSION, "looks": self.looks, **self._settings}
            content["offset"] = Offset(self.positions).to_json()
            with Draft(self._path.parent, NAME) as draft:
                draft.file.write(json.dumps(content).encode())
                draft.keep(self._path)
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
    """Looks at what has come of topics, as windows that are over. Belongs to one thread.

    topics: names, and patterns such as ``orders.*``; those that come later are looked at from their
    beginning. width: of a window, in microseconds. since: the pointer at which a new checkpoint begins.
    """

    def __init__(
        self,
        broker: Client,
        workers: Workers,
        topics: str | Iterable[str],
        width: int,
        checkpoint: Checkpoint,
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
        """What is over since the last look, None if nothing is. It is kept then, and will not come again.

        Raises as `survey` does, and for topics that do not exist, as `Client.topic`.
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

    def _ended(self) -> tuple[list[Stretch], list[Gap]]:
        """The stretches whose windows are over, and the topics that are not those that they were."""
        stretches, gaps = [], []
        for topic in named(self._broker, self._topics):
            info = self._broker.topic(topic)
            known = self._checkpoint.positions.get(topic)
            after, ordinal = max(0, self._since - 1), -1
            if known is not None:
                same = known.log == info.log
                after, ordinal = (known.next - 1, known.ordinal) if same else (0, 0)
            until = info.last // self._width * self._width - 1
            if until > after:
                stretches.append(Stretch(topic, after, until, ordinal))
                if known is not None and known.log != info.log:
                    gaps.append(Gap(topic, known.next - 1, info.first, -1, "recreated"))
        return stretches, gaps
