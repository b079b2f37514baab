"""The examples do what they say, as processes of their own."""

from __future__ import annotations

import random
import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

from kit.broker.brokers import BrokerProcess
from kit.deadlines import eventually, pause
from kit.scale import times
from quoth import Client

EXAMPLES = Path(__file__).parents[3] / "client" / "examples"


@contextmanager
def running(name: str, *arguments: str, **popen: Any) -> Iterator[subprocess.Popen[bytes]]:
    """An example, until it is killed."""
    command = [sys.executable, "-W", "error", str(EXAMPLES / name), *arguments]
    with subprocess.Popen(command, stderr=subprocess.PIPE, **popen) as process:
        try:
            yield process
        finally:
            process.kill()
            assert process.stderr is not None
            assert process.stderr.read() == b""


def summed_up(path: Path) -> dict[str, tuple[int, int]]:
    """Records and bytes of each key, nothing while there is no table."""
    with closing(sqlite3.connect(path, timeout=30)) as database:
        if not database.execute("SELECT 1 FROM sqlite_master WHERE name = 'sums'").fetchall():
            return {}
        return {key: (records, size) for key, records, size in database.execute("SELECT * FROM sums")}


def test_every_record_counts_once_whenever_the_consumer_is_killed(
    client: Client, broker: BrokerProcess, tmp_path: Path, topic: str, rng: random.Random
) -> None:
    path = tmp_path / "sums.db"
    records: Counter[str] = Counter()
    sizes: Counter[str] = Counter()

    def expected() -> dict[str, tuple[int, int]]:
        return {key: (records[key], sizes[key]) for key in records}

    def publish() -> None:
        keys = [rng.choice("abc") for _ in range(rng.randint(1, 2_000))]
        values = [b"x" * rng.randint(0, 50) for _ in keys]
        client.publish(topic, values, key=[key.encode() for key in keys])
        records.update(keys)
        for key, value in zip(keys, values, strict=True):
            sizes[key] += len(value)

    for _ in range(times(3, 60)):
        before = summed_up(path)
        publish()
        with running("sqlite_cursor.py", broker.url, topic, str(path)):
            eventually(lambda: summed_up(path) != before, "it counts")  # noqa: B023
            for _ in range(rng.randint(0, 5)):
                publish()
            pause(rng.uniform(0, 0.02))
    publish()
    with running("sqlite_cursor.py", broker.url, topic, str(path)):
        eventually(lambda: summed_up(path) == expected(), f"everything is counted: {expected()}")


def test_a_channel_loses_no_line_when_either_end_is_killed(tmp_path: Path, rng: random.Random) -> None:
    """A kill repeats the last lines from the cursor on, and nothing else."""
    directory, got = str(tmp_path / "jobs"), tmp_path / "got"
    put = 0

    def lines() -> list[int]:
        return [int(line) for line in got.read_bytes().splitlines()] if got.exists() else []

    for _ in range(times(3, 40)):
        with (
            got.open("ab") as out,
            running("channel.py", "get", directory, stdout=out),
            running("channel.py", "put", directory, stdin=subprocess.PIPE) as putting,
        ):
            assert putting.stdin is not None
            for _ in range(rng.randint(1, 400)):
                putting.stdin.write(b"%d\n" % put)
                put += 1
            putting.stdin.flush()
            eventually(lambda: lines()[-1:] == [put - 1], f"all {put} lines come")  # noqa: B023
            pause(rng.uniform(0, 0.01))
    found = lines()
    assert sorted(set(found)) == list(range(put))
    assert all(other <= one + 1 for one, other in pairwise(found)), "a line was left out"
