"""Backups of topics whose records groups share: a restored group goes on where it was."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from kit.broker.peers import FastPeer, Peers
from quothd import Broker
from quothd.datadir import backup as saving
from quothd.datadir import catalog, manifest
from quothd.datadir import restore as restoring
from quothlog.groups.group_log import FOLDER
from quothwire.errors import Damaged
from quothwire.pointer import POINTER_MAX
from quothwire.protocol.group_messages import DescribeGroup, GroupFetch, GroupSettle, GroupSettled, OpenGroup
from quothwire.protocol.settlement import Settle, Settlement, encode_settlements

Serve = Callable[[Path], Any]


@pytest.fixture
def serve(peers: Peers) -> Serve:
    """Serve a directory; yields a client."""

    @contextmanager
    def serve_it(directory: Path) -> Iterator[FastPeer]:
        with Broker(directory, host="127.0.0.1", port=0) as broker:
            yield peers.fast(broker)

    return serve_it


def _ack(fast: FastPeer, records: int) -> int:
    """Fetch and acknowledge at most so many records; returns their number."""
    found = fast.call(GroupFetch("g", records_max=records), "t")
    rows = [Settlement(Settle.ACK, first, last, token) for token, _, first, last in found.leases]
    settled = fast.call(GroupSettle("g", len(rows)), "t", encode_settlements(rows))
    assert isinstance(settled, GroupSettled)
    return settled.records


def _save(data: Path, to: Path) -> None:
    outcomes = [*saving.backup(catalog.scan(data).folders, to, POINTER_MAX, lambda _size: None, exact=False)]
    assert not any(outcome.problem or outcome.damages for outcome in outcomes)


def _restore(backup: Path, directory: Path) -> None:
    topics = restoring.select(backup, (), None)
    restoring.check(backup, topics, lambda _size: None)
    assert len([*restoring.restore(backup, topics, directory, "", None, lambda _size: None)]) == len(topics)


def test_a_restored_group_goes_on_where_it_was_at_the_backup(serve: Serve, tmp_path: Path) -> None:
    data, backup = tmp_path / "data", tmp_path / "backup"
    with serve(data) as fast:
        for number in range(10):
            fast.publish("t", [b"%d" % number])
        fast.call(OpenGroup("g"), "t")
        _ack(fast, 4)
        _save(data, backup)
        _ack(fast, 2)
        _save(data, backup)
        _ack(fast, 1)
    _restore(backup, tmp_path / "restored")
    with serve(tmp_path / "restored") as fast:
        assert fast.call(DescribeGroup("g"), "t").lag == 4
        fast.publish("t", [b"10"])
        assert [_ack(fast, 100) for _ in range(3)] == [4, 1, 0], "a restored log goes on in a new segment"


def test_a_changed_log_of_groups_is_found_before_anything_is_restored(serve: Serve, tmp_path: Path) -> None:
    data, backup = tmp_path / "data", tmp_path / "backup"
    with serve(data) as fast:
        fast.publish("t", [b"x"])
        fast.call(OpenGroup("g"), "t")
    _save(data, backup)
    (saved,) = (manifest.load(backup) or {}).values()
    (file,) = (backup / saved.folder / FOLDER).glob("*.seg")
    file.write_bytes(file.read_bytes()[:-1] + b"?")
    with pytest.raises(Damaged):
        _restore(backup, tmp_path / "restored")
    assert not (tmp_path / "restored").exists()
