"""The source of `quoth forward` for slabs: a failed sync ends the forwarding, since a second one hides it."""

from __future__ import annotations

import errno
from functools import partial
from pathlib import Path

import pytest

from kit.disk.doubles import FaultyDisk
from quothcli.commands.records.forwarding import SlabSource
from quothlog import slabs
from quothlog.slabs import SlabFollower, SlabWriter
from quothwire.errors import Damaged


def test_failed_sync_is_no_error_that_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with SlabWriter(tmp_path / "slabs") as writer:
        writer.write(b"value")
    disk = FaultyDisk()
    disk.fail("sync", 1, errno.EIO)
    monkeypatch.setattr(slabs, "SlabFollower", partial(SlabFollower, filesystem=disk))
    source = SlabSource(tmp_path / "slabs")
    source.seek(0)
    with pytest.raises(Damaged, match="slab: ") as raised:
        source.wait(0.0)
    assert not raised.value.retryable
