"""`quoth bench peers` without any peer: what is skipped and why, rows that fail, and Quoth's own work."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from kit.machine.commands import Command
from quothbench.load.clients import Clients
from quothbench.peers import quoth, redis
from quothbench.peers.comparison import PeerName, run
from quothbench.peers.work import SMALL_ROUNDS, Peer, Way, Work, foreign, python_library
from quothcli.printing.output import Format, Printer
from quothwire.errors import BrokerFailure, error

FEW = {Work.BATCHES: 5_000 * quoth.ROUNDS, Work.READ: 5_000, Work.READ_SMALL: 1_000 * SMALL_ROUNDS}
"""Messages that are stored here, as they are read."""


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with quoth.QUOTH.serving(tmp_path_factory.mktemp("ours") / "data") as address:
        quoth._store(str(address), 5_000, 1_000)
        yield str(address)


def test_peer_that_is_not_installed_is_skipped_with_its_reason(alone: Command, tmp_path: Path) -> None:
    typed = ("bench", "peers", "--format", "json", "--pairs", "3")
    (conditions,) = alone(*typed, environment={"PATH": str(tmp_path)}).objects
    assert (conditions["benchmark"], conditions["pairs"]) == ("peers", 3)
    for name in ("redis", "rabbitmq"):
        missing = f"{name}-server is not installed, or not in PATH: apt install {name}-server"
        assert conditions[name] == f"skipped: {missing}"
    assert conditions["poe"] == "skipped: escript is not installed, or not in PATH: apt install erlang-base"
    assert conditions["quoth"].startswith("written: ")


def test_only_named_peers_take_part_and_each_program_is_needed(alone: Command, tmp_path: Path) -> None:
    server = tmp_path / "rabbitmq-server"
    server.write_bytes(b"")
    server.chmod(0o755)
    ended = alone("bench", "peers", "--peer", "rabbitmq", environment={"PATH": str(tmp_path)})
    assert "skipped: epmd is not installed" in ended.lines[0]
    assert ended.lines[0].endswith("apt install erlang-base")
    assert not [line for line in ended.lines if line.startswith("redis")]


def test_library_that_is_not_installed_is_named() -> None:
    assert python_library("json") == ""
    missing = "the Python library no_such is not installed: pip install no_such"
    assert redis.REDIS._replace(programs={}, library=lambda: python_library("no_such")).missing() == missing


def test_error_of_another_library_becomes_ours() -> None:
    with pytest.raises(BrokerFailure, match="there: ValueError: no such reply"), foreign("there"):
        raise ValueError("no such reply")


@contextmanager
def not_starting(_directory: Path) -> Iterator[str]:
    raise error("disconnected", "it did not start: no room")
    yield ""


@pytest.mark.parametrize("starts", [True, False], ids=["reads fail", "server fails"])
def test_row_that_fails_has_a_problem_and_the_next_one_follows(
    starts: bool, tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    """The peer is a broker, which is no Redis to read from."""
    ways = [Way(Work.READ, "", 10, redis._read, (10, True)), quoth.QUOTH.ways[0]._replace(messages=1_000)]
    server = quoth.QUOTH.serving if starts else not_starting
    peer = Peer("everysec", "as it is", {}, lambda: "", lambda: "1.0", server, lambda _: None, ways)
    own = quoth.QUOTH._replace(store=lambda url: quoth._store(url, 5_000, 1_000))
    own = own._replace(ways=[way._replace(messages=1_000) for way in own.ways])
    assert not run(Printer(Format.JSON), {PeerName.REDIS: peer}, tmp_path, 1, own)
    _, *found = map(json.loads, capsysbinary.readouterr().out.splitlines())
    rows: list[dict[str, Any]] = found
    found_problems = {row["work"]: row["problem"] for row in rows}
    if starts:
        assert list(found_problems) == ["read(limit=10000)", "publish([100])"]
        assert found_problems["read(limit=10000)"].startswith("redis: ")
        assert [row["ratio"] is None for row in rows] == [True, False]
    else:
        assert found_problems == {"server": "it did not start: no room"}


def test_quoth_does_all_the_work(url: str) -> None:
    assert [way.work for way in quoth.QUOTH.ways] == list(Work)
    with Clients(1) as clients:
        for way in quoth.QUOTH.ways:
            assert way._replace(messages=FEW.get(way.work, 1_000)).measure(clients, url) > 0
