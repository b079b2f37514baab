"""Topics with much in them, written at the speed of the disk into the data directory of a broker to come."""

from __future__ import annotations

import os
import random
import shutil
from pathlib import Path

from kit.disk.logs import encoded, segments
from quothd.datadir import catalog
from quothlog import Appended, Log, LogOptions
from quothlog.datadir import topic_file
from quothlog.datadir.topic_file import TopicFile
from quothlog.recovery.recovery import new_log_id
from quothwire.settings import TopicSettings

BURST_BYTES = 4 * 2**20


def make_topic(data: Path, name: str, size_limit: int) -> Path:
    """A topic without a record in a data directory; returns its folder."""
    catalog.scan(data)
    return catalog.make(data, TopicFile(name, new_log_id(), TopicSettings(size_limit=size_limit)))


def append_to(folder: Path, size: int, batch_bytes: int, *, seal: bool = False, close: bool = True) -> None:
    """Append so many bytes to the topic in a folder, in batches of one record that cannot be compressed.

    seal: the segment that is active then is empty. close: False leaves it as a process does that is killed.
    """
    topic = topic_file.decode((folder / topic_file.NAME).read_bytes())
    options = LogOptions(size_limit=topic.settings.size_limit or 2**60)
    raw = encoded([random.Random(1).randbytes(batch_bytes)])
    burst = [raw] * max(1, BURST_BYTES // len(raw))
    log = Log.open(folder, options=options, log_id=topic.log_id, others=(topic_file.NAME,))
    left = size // len(raw)
    while left:
        outcomes = log.append_batches(burst[:left])
        assert all(isinstance(outcome, Appended) for outcome in outcomes)
        left -= len(outcomes)
    if seal:
        log.roll()
    log.sync()
    if close:
        log.close()
    else:
        log.discard()


def share(data: Path, at: Path) -> Path:
    """A data directory of its own with the same topics, which shares what never changes: sealed segments."""
    active = {max(segments(folder)) for folder in (data / "topics").iterdir()}

    def put(source: str, target: str) -> None:
        if source.endswith(".seg") and Path(source) not in active:
            os.link(source, target)
        else:
            shutil.copy2(source, target)

    shutil.copytree(data, at, copy_function=put)
    return at


def drop_from_cache(folder: Path) -> int:
    """Let the system forget what it keeps in memory of a topic's sealed segments; returns their bytes."""
    size = 0
    for path in segments(folder)[:-1]:
        fd = os.open(path, os.O_RDONLY)
        try:
            os.fdatasync(fd)  # what is not on the disk yet would stay
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            size += os.fstat(fd).st_size
        finally:
            os.close(fd)
    return size
