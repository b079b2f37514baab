"""The manifest: it is read as it was written, and refused when it is damaged."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from quoth.spark.archive import manifest as manifests
from quoth.spark.archive.manifest import (
    ArchivedFile,
    ArchivedLog,
    ArchivedLoss,
    ArchiveManifest,
    ReplacedFile,
    decoded,
)
from quoth.spark.archive.store import ArchiveStore, read_manifest
from quothwire.errors import Conflict, Damaged, RequestError

FILES = [
    ArchivedFile(f"topic=t/day=1970-01-01/{n:017d}-{n + 4:017d}.parquet", n, n + 4, 5, 900, n, n * 2**60)
    for n in (0, 5, 10, 15)
]
LOG = ArchivedLog("t", 2**64 - 1, 1).grown(19, 20, FILES, [])
_LOST = ArchivedLog("ü", 7, 2, until=3, losses=(ArchivedLoss(0, 4, 3, "damaged"),), lost=3)
FULL = ArchiveManifest(1, (LOG, _LOST), (ReplacedFile("topic=t/day=1970-01-01/x.parquet", 12),))


def test_written_manifest_is_read_back() -> None:
    assert decoded(FULL.encoded(1), "here") == FULL
    assert decoded(ArchiveManifest().encoded(0), "here") == ArchiveManifest()


def test_one_changed_byte_is_detected_or_has_no_effect(rng: random.Random) -> None:
    content = FULL.encoded(1)
    for at in rng.sample(range(len(content)), 300):
        changed = content[:at] + bytes([content[at] ^ 1 << rng.randrange(8)]) + content[at + 1 :]
        try:
            assert decoded(changed, "here") == FULL, at  # such as a blank
        except Damaged as problem:
            assert "here is no manifest of an archive" in problem.text  # noqa: PT017


@pytest.mark.parametrize(
    "content", [b"", b"{}", b"[]", b"null", b"7", b"[" * 100_000, b"\xff", b'{"manifest": 1}']
)
def test_malformed_manifest_is_refused_and_unchanged(tmp_path: Path, content: bytes) -> None:
    (tmp_path / manifests.NAME).write_bytes(content)
    with pytest.raises(Damaged, match="nothing was changed"):
        ArchiveStore(tmp_path)
    assert (tmp_path / manifests.NAME).read_bytes() == content
    (tmp_path / manifests.NAME).unlink()
    ArchiveStore(tmp_path).close()  # and the lock was given free


def with_checksum(body: object) -> bytes:
    text = json.dumps(body, ensure_ascii=False, indent=1)
    return f'{{"checksum": "{manifests._checksum(text)}", "manifest": {text}}}'.encode()


def test_unknown_keys_of_a_manifest_are_ignored() -> None:
    def with_news(value: object) -> object:
        if isinstance(value, dict):
            return {"news": [1], **{name: with_news(one) for name, one in value.items()}}
        return [with_news(one) for one in value] if isinstance(value, list) else value

    body = json.loads(FULL.encoded(1))["manifest"]
    assert decoded(with_checksum(with_news(body)), "here") == FULL


def test_manifest_of_another_version_is_refused_with_a_remedy(tmp_path: Path) -> None:
    wide = FILES[0]._replace(hash=0x2A276C6345F13496F0AB0C66AA566862)
    for content, text in (
        (with_checksum({"archive": manifests.VERSION + 1, "news": True}), "is of version 2"),
        (
            ArchiveManifest(1, (LOG.grown(19, 20, [wide], []),)).encoded(1),
            "128 bits.*archive anew, into another folder",
        ),
    ):
        (tmp_path / manifests.NAME).write_bytes(content)
        with pytest.raises(RequestError, match=f"unsupported_version.*{text}"):
            ArchiveStore(tmp_path)


def test_one_program_at_a_time_writes_to_an_archive(tmp_path: Path) -> None:
    with ArchiveStore(tmp_path), pytest.raises(Conflict, match=r"locked.*in use by process"):
        ArchiveStore(tmp_path)
    ArchiveStore(tmp_path).close()


def test_commit_that_does_not_follow_the_one_it_began_with_is_refused(tmp_path: Path) -> None:
    """As it were on a file system that keeps no locks between machines."""
    with ArchiveStore(tmp_path) as store:
        store.commit(FULL)
        (tmp_path / manifests.NAME).write_bytes(ArchiveManifest().encoded(2))  # of another program
        with pytest.raises(Conflict, match="changed by another program"):
            store.commit(FULL)
    assert read_manifest(tmp_path) == ArchiveManifest(2)


@pytest.mark.parametrize("oldest", ["trimmed", "damaged"])
def test_all_losses_are_counted_and_the_newest_kept_behind_one_that_sums_up_older_damage(oldest: str) -> None:
    log, most = ArchivedLog("t", 1, 1), manifests.LOSSES_MAX
    for n in range(1, 3 * most):
        reason = oldest if n < 2 * most else "trimmed"
        log = log.grown(10 * n, n, [], [ArchivedLoss(10 * n, 10 * n + 5, 2, reason)])
    assert (log.lost, len(log.losses)) == (2 * (3 * most - 1), most)
    first, *newest = log.losses
    assert [loss.after for loss in newest] == [10 * n for n in range(2 * most + 1, 3 * most)]
    summed = ArchivedLoss(10, 10 * (2 * most - 1) + 5, 2 * (2 * most - 1), "damaged")
    alone = ArchivedLoss(20 * most, 20 * most + 5, 2, "trimmed")
    assert first == (summed if oldest == "damaged" else alone)
