"""A consumer in a process of its own that reads the cold history of a topic over and over, without pause."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import quoth
from kit.broker.brokers import BrokerProcess
from kit.deadlines import DEADLINE_S, eventually
from kit.disk.topics import drop_from_cache
from kit.machine.processes import freeze, python_of, thawed

_COUNTER = struct.Struct("<Q")


class Scan:
    """The consumer, which is stopped except within `running`."""

    def __init__(self, process: subprocess.Popen[bytes], counter: Path) -> None:
        self._process = process
        self._counter = counter

    @property
    def records(self) -> int:
        data = self._counter.read_bytes()
        return _COUNTER.unpack(data)[0] if data else 0

    @contextmanager
    def running(self) -> Iterator[None]:
        """Let it run during the block, which begins after its next records."""
        before = self.records
        with thawed(self._process.pid):
            eventually(lambda: self.records > before, "it reads")
            yield


@contextmanager
def scanning(broker: BrokerProcess, topic: str) -> Iterator[Scan]:
    """Start a consumer of the sealed segments of the broker's only topic."""
    (folder,) = broker.topics_directory.iterdir()
    counter = broker.directory.with_name(f"{broker.directory.name}.scanned")
    process = subprocess.Popen(
        [*python_of("kit.broker.scanning"), broker.url, topic, str(folder), str(counter)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    try:
        scan = Scan(process, counter)
        eventually(lambda: counter.exists() and scan.records, "it reads")
        freeze(process.pid)
        yield scan
    finally:
        process.kill()
        process.wait(DEADLINE_S)


def main() -> None:
    url, topic, folder, counter = sys.argv[1:]
    fd = os.open(counter, os.O_RDWR | os.O_CREAT)
    records = 0
    with quoth.connect(url) as client:
        end = client.topic(topic).last
        while True:
            drop_from_cache(Path(folder))
            for batch in client.batches(topic, until=end):
                records += len(batch)
                os.pwrite(fd, _COUNTER.pack(records), 0)
