"""Upgrades from every release: its data directory is served, and its clients and brokers work with today's.

The releases are kept in tests/golden/releases, with the code of each.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import quoth
from kit.broker.brokers import BrokerProcess, StartBroker
from kit.disk.golden import FOREVER
from kit.machine.commands import Command
from kit.releases.releases import RELEASES, broker_of, run_program, unpacked, versions
from quothwire import VERSION

pytestmark = pytest.mark.parametrize("version", versions())
BYTES_MAX = 1_000_000


class Release:
    """A release. code: its packages. root: a copy of its folder, which a test may change."""

    def __init__(self, version: str, directory: Path) -> None:
        self.version = version
        self.root = Path(shutil.copytree(RELEASES / version, directory / "release"))
        self.code = unpacked(version, directory / "code")
        self.said: dict[str, Any] = json.loads((self.root / "said.json").read_text("utf-8"))


@pytest.fixture
def release(version: str, tmp_path: Path) -> Release:
    return Release(version, tmp_path)


@pytest.fixture
def its_broker(release: Release) -> Iterator[BrokerProcess]:
    """A running broker of the release, on the data that it wrote."""
    broker = broker_of(release.code, release.root / "data", **FOREVER)
    yield broker.start()
    broker.close()


def test_its_data_directory_has_every_record_group_and_transaction(
    release: Release, start_broker: StartBroker
) -> None:
    """New records go on behind the old ones, and all of it is there after another start."""
    broker = start_broker(directory=release.root / "data", **FOREVER)
    assert run_program(None, "content", broker.url) == release.said
    with quoth.connect(broker.url) as client:
        newest = {name: topic["records"][-1][0] for name, topic in release.said["topics"].items()}
        assert all(client.publish(name, b"new").first > last for name, last in newest.items())
        records = [record[1] for record in release.said["topics"]["orders"]["records"]]
        left = [*records[3:], "new"]  # two were acknowledged, and one is a dead letter
        with client.group("orders", "billing") as group:
            assert [one.value.decode("latin-1") for _, one in zip(left, group, strict=False)] == left
            assert group.lag().records == 0
    assert broker.terminate() == 0
    broker.restart()
    with quoth.connect(broker.url) as client:
        for name, topic in release.said["topics"].items():
            found = [one.value.decode("latin-1") for one in client.read(name, limit=10_000)]
            assert found == [*(record[1] for record in topic["records"]), "new"]
    verified = Command("", [])("log", "verify", str(release.root / "data"))
    assert verified.status == 0, verified.out


def test_its_client_works_with_the_broker_of_today(release: Release, start_broker: StartBroker) -> None:
    broker = start_broker()
    used = run_program(release.code, "use", broker.url, "upgraded")
    assert used.pop("versions") == [release.version, f"quothd {VERSION}"]
    assert used == EXPECTED


def test_the_client_of_today_works_with_its_broker(release: Release, its_broker: BrokerProcess) -> None:
    """As it does while clients are upgraded before the broker."""
    used = run_program(None, "use", its_broker.url, "upgraded")
    assert used.pop("versions") == [VERSION, f"quothd {release.version}"]
    assert used == EXPECTED
    assert run_program(None, "content", its_broker.url) == release.said


def test_its_broker_serves_what_the_broker_of_today_has_written(
    release: Release, its_broker: BrokerProcess, start_broker: StartBroker
) -> None:
    """As it does after a downgrade."""
    assert its_broker.terminate() == 0
    broker = start_broker(directory=its_broker.directory, **FOREVER)
    used = run_program(None, "use", broker.url, "downgraded")
    assert broker.terminate() == 0
    its_broker.restart()
    assert run_program(release.code, "content", its_broker.url) == release.said
    with quoth.connect(its_broker.url) as client:
        values = [one.value.decode() for one in client.read("downgraded", limit=10_000)]
        assert values == [*used["read"], "staged"]


def test_its_folder_is_small_and_names_no_machine(version: str) -> None:
    files = [path for path in (RELEASES / version).rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) <= BYTES_MAX
    for path in files:
        content = path.read_bytes()
        assert not any(sign in content for sign in (b"/tmp/", b"/home/", b"/root/")), path
        assert path.name != "lock"


ROWS = [f"{row}" for row in range(1_000)]
EXPECTED = {
    "read": ["one", "two", *ROWS],
    "is_followed": True,
    "again": ["one", "two", *ROWS[:3]],
    "letters": ["two"],
    "committed": [["staged"], "published"],
    "segments": 2,
    "is_listed": True,
}
"""What `program.use` does, whatever the versions of both sides."""
