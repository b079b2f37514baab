"""Reads every sealed segment of a data directory at a limited rate and reports damage.

    python -m quothd.service.scrub_process DIR BYTES_PER_SECOND

It is a process of its own and prints a line of JSON for each segment. It ends after one round, or at the end
of its stdin, when its parent is gone. The order of topics is random, so that interrupted rounds reach all of
them in time.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import select
import sys
import time
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

from quothlog.datadir.topic_folder import log_id_of
from quothlog.groups.group_log import FOLDER, group_log_id
from quothlog.recovery import verify
from quothwire.errors import QuothError

AHEAD_S_MAX = 0.05
"""A reader waits once it is so far ahead of its rate: shorter waits would be too many."""
NICENESS = 10


class Throttle:
    """Limits reading to a rate: a call with the bytes read waits until the rate allows more.

    rate: bytes a second. wait: waits for a number of seconds.
    """

    def __init__(self, rate: float, wait: Callable[[float], None] = time.sleep) -> None:
        self._rate = rate
        self._wait = wait
        self._due = time.monotonic()

    def __call__(self, size: int) -> None:
        """Wait until the rate allows more. size: the bytes read since the last call."""
        now = time.monotonic()
        self._due = max(self._due, now - AHEAD_S_MAX) + size / self._rate
        if self._due - now > AHEAD_S_MAX:
            self._wait(self._due - now)


def scrub(directory: Path, advance: Callable[[int], None]) -> Iterator[dict[str, Any]]:
    """Read every sealed segment of a data directory; yields a report with its bytes and its damages.

    A topic that is deleted meanwhile is skipped. A topic that cannot be read yields a problem.
    """
    topics = directory / "topics"
    folders = [path for path in topics.iterdir() if log_id_of(path) and not path.name.startswith(".")]
    random.shuffle(folders)
    for folder, log_id in chain.from_iterable(map(_logs, folders)):
        try:
            for found in verify.summaries(folder, log_id=log_id, sealed_only=True, advance=advance):
                damages = [damage._asdict() | {"path": str(damage.path)} for damage in found.unmended]
                yield {"bytes": found.bytes, "damages": damages}
        except FileNotFoundError:
            continue
        except (QuothError, OSError) as problem:
            yield {"bytes": 0, "damages": [], "problem": f"{folder.name}: {problem}"}


def _logs(folder: Path) -> Iterator[tuple[Path, int]]:
    """Yield the logs in a topic's folder with their ids: its own, and that of its groups."""
    log_id = log_id_of(folder)
    yield folder, log_id
    if (folder / FOLDER).is_dir():
        yield folder / FOLDER, group_log_id(log_id)


def main() -> None:
    """Run one round."""
    directory, rate = Path(sys.argv[1]), float(sys.argv[2])
    os.nice(NICENESS)
    with contextlib.suppress(BrokenPipeError):
        for report in scrub(directory, Throttle(rate, _wait_or_end)):
            os.write(sys.stdout.fileno(), json.dumps(report).encode() + b"\n")


def _wait_or_end(seconds: float) -> None:
    """Wait; exits at the end of stdin."""
    if select.select([sys.stdin], [], [], seconds)[0]:
        sys.exit(0)


if __name__ == "__main__":
    main()
