"""A process of its own that reads every sealed segment of a data directory, slowly, and tells what it finds.

    python -m quothd.service.scrub_process DIR BYTES_PER_SECOND

One line of JSON on stdout for each segment. It ends after one round, or once its stdin ends: whoever started
it is gone then. Topics are looked at in random order, so that rounds which are broken off reach all of them.
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
from pathlib import Path
from typing import Any

from quothlog.datadir.topic_folder import log_id_of
from quothlog.recovery import verify
from quothlog.recovery.verify import Summary
from quothwire.errors import QuothError

PATIENCE_S = 0.05
"""It reads on until it is this far ahead of its rate, then it waits."""
NICENESS = 10


class Pace:
    """Keeps somebody to a rate: called with what was done, it waits as long as that should have taken.

    rate: bytes a second. wait: waits for so many seconds.
    """

    def __init__(self, rate: float, wait: Callable[[float], None] = time.sleep) -> None:
        self._rate = rate
        self._wait = wait
        self._due = time.monotonic()

    def __call__(self, size: int) -> None:
        """So many bytes were done since the last call."""
        now = time.monotonic()
        self._due = max(self._due, now - PATIENCE_S) + size / self._rate
        if self._due - now > PATIENCE_S:
            self._wait(self._due - now)


def scrub(directory: Path, advance: Callable[[int], None]) -> Iterator[dict[str, Any]]:
    """Read every sealed segment below a data directory; tells of each of them.

    A topic that is deleted meanwhile is passed over, one that cannot be read is told as a problem.
    """
    topics = directory / "topics"
    folders = [path for path in topics.iterdir() if log_id_of(path) and not path.name.startswith(".")]
    random.shuffle(folders)
    for folder in folders:
        try:
            for found in verify.summaries(
                folder, log_id=log_id_of(folder), sealed_only=True, advance=advance
            ):
                yield {"bytes": found.bytes, "damages": _damages(found)}
        except FileNotFoundError:
            continue
        except (QuothError, OSError) as problem:
            yield {"bytes": 0, "damages": [], "problem": f"{folder.name}: {problem}"}


def main() -> None:
    """Do one round."""
    directory, rate = Path(sys.argv[1]), float(sys.argv[2])
    os.nice(NICENESS)
    with contextlib.suppress(BrokenPipeError):
        for told in scrub(directory, Pace(rate, _wait_or_end)):
            os.write(sys.stdout.fileno(), json.dumps(told).encode() + b"\n")


def _damages(found: Summary) -> list[dict[str, Any]]:
    return [damage._asdict() | {"path": str(damage.path)} for damage in found.unmended]


def _wait_or_end(seconds: float) -> None:
    """Wait; end if stdin has ended."""
    if select.select([sys.stdin], [], [], seconds)[0]:
        sys.exit(0)


if __name__ == "__main__":
    main()
