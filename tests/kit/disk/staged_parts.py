"""A transaction of five parts, small enough to be appended or too large for that."""

from __future__ import annotations

from pathlib import Path

import pytest

from kit.broker.transactions import Loader
from quothlog import LogOptions
from quothwire.protocol.transaction import StagedPart

SMALL = LogOptions(size_limit=2**20)
LARGE = LogOptions(size_limit=5_000)
"""A quarter of a segment is soon reached, so transactions become segments of their own."""
PARTS = [[[b"%d.%d.%d" % (part, n, i) + b"-" * 150 for i in range(3)] for n in range(4)] for part in range(5)]
WHOLE = [value for part in PARTS for values in part for value in values]

sizes = pytest.mark.parametrize("options", [SMALL, LARGE], ids=["appended", "segments"])


def stage_all(loader: Loader, version: int = 1, attempt: int = 7) -> list[StagedPart]:
    return [loader.stage(version, part, batches, attempt) for part, batches in enumerate(PARTS)]


def leftovers(directory: Path) -> list[str]:
    """Files of transactions that are not published."""
    return [path.name for path in directory.iterdir() if path.suffix in (".staged", ".merged", ".plan")]
