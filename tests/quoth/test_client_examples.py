"""The examples do what they say, as processes of their own."""

from __future__ import annotations

import random
import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from kit.brokers import BrokerProcess
from kit.deadlines import eventually, pause
from kit.effort import times
from quoth import Client

EXAMPLES = Path(__file__).parents[2] / "client" / "examples"


@contextmanager
def running(name: str, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """An example, until it is killed."""
    command = [sys.executable, "-W", "error", str(EXAMPLES / name), *arguments]
    with subprocess.Popen(command, stderr=subprocess.PIPE) as process:
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

    for _ in range(times(6, 60)):
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
