"""A process that archives and trims, or compacts, is killed instead of each change that it makes to the disk.

Before the manifest is replaced and after it, before files are synced and named and after it: the next run
goes on, and the archive holds what the topic ever held, each record once.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from kit.broker.brokers import StartBroker
from kit.scale import times
from kit.spark.archives import Account, account, files_in, of_archive, publish, run, work
from kit.spark.sparks import DIED
from quoth import Client
from quoth.spark.archive import archived_files
from quoth.spark.archive.store import read_manifest

FEW, MANY = 10, 15
"""Every run changes the disk so often; few do more often than that."""


class Published:
    """The count and the sum of all records that were ever published to a topic."""

    def __init__(self, client: Client, topic: str) -> None:
        self._client = client
        self.topic = topic
        self.account = Account(0, 0)

    def more(self) -> None:
        """Publish some more, and seal it so that it may be trimmed."""
        after = self._client.topic(self.topic).last if self.account.records else 0
        publish(self._client, self.topic, [30, 1, 12, 30], str(self.account.records))
        found = self._client.read(self.topic, after=after, limit=10_000)
        new = account((one.pointer, one.key, one.value, one.headers) for one in found)
        self.account = Account(self.account.records + new.records, self.account.sum + new.sum)
        self._client.roll(self.topic)


@pytest.mark.parametrize("action", ["trim", "compact"])
def test_run_after_a_kill_at_any_change_of_the_disk_completes_the_archive(
    start_broker: StartBroker, connect: Any, tmp_path: Path, rng: random.Random, action: str
) -> None:
    broker = start_broker()
    client: Client = connect(broker)
    root, published = tmp_path / "archive", Published(client, "orders")

    def prepare() -> None:
        published.more()
        if action == "compact":
            run("archive", client, root)

    prepare()
    run("archive", client, root)
    for die_at in rng.sample(range(1, MANY), times(2, MANY - 1)):
        prepare()
        before = set(archived_files(root))
        killed = work(action, broker.url, root, die_at=die_at) == DIED
        assert killed or die_at > FEW, f"{action} has less than {die_at} changes"
        if killed:
            after = set(archived_files(root))
            assert before == after or published.account == of_archive(root), die_at
            assert after <= set(files_in(root)), die_at
        run("trim" if action == "trim" else "archive", client, root)
        assert of_archive(root) == published.account, die_at
    run("compact", client, root)
    assert of_archive(root) == published.account
    assert files_in(root) == archived_files(root)
    [log] = read_manifest(root).logs
    assert (log.rows, log.lost) == (published.account.records, 0)
    if action == "trim":
        assert client.topic("orders").count == 0
