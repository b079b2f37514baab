"""`quoth log verify` and `repair` look at the log of a topic's groups, too."""

from __future__ import annotations

from pathlib import Path

import quoth
from kit.machine.commands import Command
from quothd import Broker


def _made(directory: Path) -> Path:
    """Make a topic with a group that has acknowledged records; returns the segment of the group's log."""
    with Broker(directory) as broker, quoth.connect(broker) as client:
        for number in range(10):
            client.publish("t", b"%d" % number)
        with client.group("t", "g") as group:
            for message in group.fetch(10):
                message.ack()
    (segment,) = directory.glob("topics/*/groups/*.seg")
    return segment


def test_damage_in_the_log_of_the_groups_is_found_and_mended(alone: Command, tmp_path: Path) -> None:
    segment = _made(tmp_path / "data")
    whole = alone("log", "verify", str(tmp_path / "data"), "--format", "json")
    assert whole.status == 0
    assert [(one["topic"], one["whole"]) for one in whole.objects] == [("t", True), ("t, groups", True)]

    data = bytearray(segment.read_bytes())
    data[len(data) // 2] ^= 1
    segment.write_bytes(data)
    damaged = alone("log", "verify", str(tmp_path / "data"), "--format", "json")
    assert damaged.status == 1
    assert [(one["topic"], one["whole"]) for one in damaged.objects] == [("t", True), ("t, groups", False)]

    assert alone("log", "repair", str(tmp_path / "data")).status == 0
    mended = alone("log", "verify", str(tmp_path / "data"), "--format", "json")
    assert [(one["topic"], one["whole"]) for one in mended.objects] == [("t", True), ("t, groups", True)]
    with Broker(tmp_path / "data") as broker, quoth.connect(broker) as client:
        assert client.group("t", "g").info().lag <= 1, "an ack may be gone, and none is there too much"
