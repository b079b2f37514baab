"""`quoth bench peers` without any peer: who is skipped and why, what is told, and Quoth's own side of it."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from kit.machine.commands import Command
from quothbench.load.clients import Clients
from quothbench.load.server import free_ports, serving
from quothbench.peers import comparison, quoth, redis
from quothbench.peers.comparison import TRIALS, Name, fastest
from quothbench.peers.work import Peer, Way, Work, foreign, missing
from quothcli.printing.formats import Format
from quothcli.printing.output import Printer
from quothwire.errors import BrokerFailure, Disconnected, error

REDIS = "skipped: redis-server is not installed, or not in PATH: apt install redis-server"
RABBITMQ = "skipped: rabbitmq-server is not installed, or not in PATH: apt install rabbitmq-server"


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[quoth.Quoth]:
    """Quoth's side of the comparison."""
    few = quoth.Amounts(published=1_000, sent=5_000, stored=5_000, raw=1_000, raw_stored=500)
    directory = tmp_path_factory.mktemp("ours") / "data"
    with Clients(1) as clients, quoth.serving(directory, clients, few) as side:
        yield side


def test_peer_that_is_not_installed_is_skipped_with_its_reason(alone: Command, tmp_path: Path) -> None:
    told = alone("bench", "peers", environment={"PATH": str(tmp_path)})
    assert told.status == 0, told
    assert f"redis       {REDIS}" in told.lines
    assert f"rabbitmq    {RABBITMQ}" in told.lines
    assert told.lines[-1].startswith("work ")


def test_skipped_peer_as_json(alone: Command, tmp_path: Path) -> None:
    told = alone("bench", "peers", "--format", "json", "--pairs", "3", environment={"PATH": str(tmp_path)})
    assert told.status == 0, told
    (conditions,) = told.objects
    assert conditions["benchmark"] == "peers"
    assert conditions["redis"] == REDIS
    assert conditions["rabbitmq"] == RABBITMQ
    assert conditions["quoth"].startswith("written: ")
    assert conditions["pairs"] == 3


@pytest.mark.parametrize(("named", "other"), [("redis", "rabbitmq"), ("rabbitmq", "redis")])
def test_only_the_peers_that_are_named(alone: Command, tmp_path: Path, named: str, other: str) -> None:
    arguments = ["--peer", named, "--peer", named, "--format", "json"]
    (conditions,) = alone("bench", "peers", *arguments, environment={"PATH": str(tmp_path)}).objects
    assert named in conditions
    assert other not in conditions


def test_each_program_of_a_peer_is_missed(alone: Command, tmp_path: Path) -> None:
    server = tmp_path / "redis-server"
    server.write_bytes(b"")
    server.chmod(0o755)
    told = alone("bench", "peers", "--peer", "redis", environment={"PATH": str(tmp_path)})
    assert "skipped: redis-benchmark is not installed" in told.lines[0]
    assert told.lines[0].endswith("apt install redis-tools")


def test_library_is_missed() -> None:
    assert missing({}, ["json"]) == ""
    assert missing({}, ["json", "no_such_library"]).endswith("pip install no_such_library")


@pytest.mark.parametrize(
    ("option", "value", "status", "said"),
    [
        ("--peer", "kafka", 2, "kafka"),
        ("--pairs", "0", 2, "--pairs"),
        ("--dir", "no/such/directory", 3, "no/such/directory"),
    ],
)
def test_mistakes_are_told(alone: Command, option: str, value: str, status: int, said: str) -> None:
    told = alone("bench", "peers", option, value)
    assert told.status == status, told
    assert said in told.err
    assert "hint: " in told.err


def test_server_that_does_not_start_is_told_with_its_last_words() -> None:
    with (
        pytest.raises(Disconnected, match="it did not start: no room"),
        serving("it", [sys.executable, "-c", "print('a'); print('no room'); print()"], "ready"),
    ):
        pass


def test_server_is_ended() -> None:
    said = "print('so ready', flush=True); import signal; signal.pause()"
    with serving("it", [sys.executable, "-c", said], "ready") as server:
        assert server.said == "so ready"
        assert Path(f"/proc/{server.pid}").exists() or sys.platform != "linux"
    assert not Path(f"/proc/{server.pid}").exists()


def test_free_ports_differ() -> None:
    assert len(set(free_ports(5))) == 5


def test_foreign_errors_become_ours() -> None:
    def fail() -> None:
        raise ValueError("no such reply")

    with pytest.raises(BrokerFailure, match="there: ValueError: no such reply"):
        foreign("there")(fail)()


def test_the_fastest_way_is_taken_by_the_best_of_its_trials() -> None:
    first, later = [4.0, 3.0, 2.0], [1.0, 3.0, 2.0]
    rates = iter(first + later * (TRIALS - 1))
    ways = [Way(name, lambda: next(rates)) for name in "abc"]
    assert fastest(ways).name == "a"
    assert next(rates, None) is None


class Ailing:
    """A peer that can write, whose reads fail."""

    def ways(self, work: Work) -> Sequence[Way]:
        match work:
            case Work.PUBLISH | Work.RAW_WRITE:
                return [Way("at once", lambda: 1_000.0)]
            case Work.READ:
                return [Way("by page", self._fail)]
            case _:
                return []

    def _fail(self) -> float:
        raise error("internal", "redis-benchmark: All clients disconnected... aborting.")


@contextmanager
def ailing(_directory: Path, _clients: Clients) -> Iterator[Ailing]:
    """Run the peer whose reads fail."""
    yield Ailing()


@contextmanager
def not_starting(_directory: Path, _clients: Clients) -> Iterator[Ailing]:
    """Do not run."""
    raise error("disconnected", "it did not start: no room")
    yield Ailing()


def compared(
    server: Callable[[Path, Clients], AbstractContextManager[Ailing]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsysbinary: pytest.CaptureFixture[bytes],
) -> tuple[bool, list[dict[str, Any]]]:
    """What comparing with a peer returns, and its rows."""
    peer = Peer("everysec", "as it is", lambda: "", lambda: "1.0", server)
    monkeypatch.setitem(comparison.PEERS, Name.REDIS, peer)
    whole = comparison.run(Printer(Format.JSON), [Name.REDIS], tmp_path, 1)
    _, *rows = map(json.loads, capsysbinary.readouterr().out.splitlines())
    return whole, rows


def test_row_that_fails_says_so_and_the_next_one_follows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    whole, rows = compared(ailing, tmp_path, monkeypatch, capsysbinary)
    assert not whole
    problems = {row["work"]: row["problem"] for row in rows}
    assert problems == {
        "publish([100])": None,
        "read(limit=10000)": "redis-benchmark: All clients disconnected... aborting.",
        "raw write": None,
    }
    assert [row["ratio"] is None for row in rows] == [False, True, False]


def test_peer_that_does_not_start_is_a_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    whole, (row,) = compared(not_starting, tmp_path, monkeypatch, capsysbinary)
    assert not whole
    assert (row["work"], row["peer"], row["problem"]) == ("server", "redis", "it did not start: no room")


@pytest.mark.parametrize(
    ("requests", "pipelines"),
    [(redis.RAW_WRITTEN, redis.RAW_WRITE_PIPELINES), (redis.RAW_READS, redis.RAW_READ_PIPELINES)],
)
def test_redis_benchmark_gets_whole_pipelines(requests: int, pipelines: Sequence[int]) -> None:
    """It may end with "All clients disconnected" where it does not, one time in forty."""
    assert [requests % pipeline for pipeline in pipelines] == [0] * len(pipelines)


@pytest.mark.parametrize("work", Work)
def test_quoth_does_all_the_work(ours: quoth.Quoth, work: Work) -> None:
    (way,) = ours.ways(work)
    assert way.measure() > 0
