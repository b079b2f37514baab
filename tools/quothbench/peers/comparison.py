"""`quoth bench peers`: each peer and Quoth in turn, its server beside an idle Quoth and no other one."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from quothbench import options
from quothbench.figures import NO_GOAL, Goal, Spread, alternate, spreads
from quothbench.load.clients import Clients
from quothbench.load.driver import VALUE
from quothbench.peers.poe import POE
from quothbench.peers.quoth import QUOTH
from quothbench.peers.rabbitmq import RABBITMQ
from quothbench.peers.redis import REDIS
from quothbench.peers.work import Peer, Way, Work
from quothbench.report import Report, ReportColumn, count, factor, goal_columns, spread
from quothcli.cli.command import command, group
from quothcli.cli.exit_status import CommandStatus
from quothcli.cli.options import WithoutBroker
from quothcli.printing.output import Printer
from quothwire.errors import QuothError


class PeerName(StrEnum):
    """The peers."""

    REDIS = "redis"
    RABBITMQ = "rabbitmq"
    POE = "poe"


PEERS = {PeerName.REDIS: REDIS, PeerName.RABBITMQ: RABBITMQ, PeerName.POE: POE}
GOALS = {
    Work.PUBLISH: Goal(10, 15),
    Work.SEND: Goal(2, 4),
    Work.BATCHES: Goal(8, 15),
    Work.READ: Goal(3, 5),
    Work.READ_SMALL: Goal(1.5, 3),
}
COLUMNS = (
    ReportColumn("work", "work", width=17),
    ReportColumn("peer", "peer"),
    ReportColumn("durability", "durability", width=10),
    ReportColumn("way", "way", width=21),
    ReportColumn("peer_messages", "messages/s", count, 10),
    ReportColumn("quoth_messages", f"quoth, {QUOTH.durability}", count, 14),
    ReportColumn("ratio", "ratio", spread, 17),
    *goal_columns(factor, 5),
    ReportColumn("problem", "problem", width=0),
)
UNKNOWN = (None, None, None)
"""The figures of a row that could not be measured."""


def run(
    printer: Printer, peers: Mapping[PeerName, Peer], directory: Path, pairs: int, own: Peer = QUOTH
) -> bool:
    """Compare with each of the peers that is installed, a row for each way.

    Returns True if every row could be measured. A row that fails names its problem; the next one follows.
    """
    whole = True
    missing = {name: peer.missing() for name, peer in peers.items()}
    report = Report(printer, "peers", _conditions(peers, missing, pairs), COLUMNS)
    for name, peer in ((name, peer) for name, peer in peers.items() if not missing[name]):
        try:
            with (
                Clients(1) as clients,
                own.serving(directory / f"quoth-{name}") as ours,
                peer.serving(directory / name) as theirs,
            ):
                own.store(ours)
                peer.store(theirs)
                for way in peer.ways:
                    cells = (way.work, name, peer.durability, way.name)
                    try:
                        (own_way,) = (one for one in own.ways if one.work is way.work)
                        figures = _compare(clients, way, theirs, own_way, ours, pairs)
                        report.row(*cells, *figures, *GOALS[way.work], None)
                    except QuothError as problem:
                        report.row(*cells, *UNKNOWN, *GOALS[way.work], problem.text)
                        whole = False
        except QuothError as problem:
            report.row("server", name, peer.durability, None, *UNKNOWN, *NO_GOAL, problem.text)
            whole = False
    return whole


def _compare(
    clients: Clients, way: Way, theirs: object, own_way: Way, ours: object, pairs: int
) -> tuple[float, float, Spread]:
    """Return messages a second of the peer and of Quoth, and the ratios of the two."""
    measured = alternate(lambda: way.measure(clients, theirs), lambda: own_way.measure(clients, ours), pairs)
    theirs_spread, own_spread, ratios = spreads(measured)
    return theirs_spread.median, own_spread.median, ratios


def _conditions(
    peers: Mapping[PeerName, Peer], missing: Mapping[PeerName, str], pairs: int
) -> dict[str, str | int]:
    """Return the conditions of the figures, and the reason for which a peer is skipped."""
    versions = {
        str(name): f"skipped: {missing[name]}" if missing[name] else f"{peer.versions()}; {peer.promise}"
        for name, peer in peers.items()
    }
    return {
        **versions,
        "quoth": f"{QUOTH.durability}: {QUOTH.promise}",
        "load": f"values of {len(VALUE)} bytes, 1 client process, loopback",
        "pairs": pairs,
    }


app = group()


@command(app, "peers", "quoth bench peers", "quoth bench peers --peer redis --pairs 21")
def compare(
    session: WithoutBroker,
    named: Annotated[
        list[PeerName] | None,
        typer.Option("--peer", help="Whom to compare with; may be repeated (default: all)."),
    ] = None,
    pairs: options.Pairs = options.PAIRS_MIN,
    directory: options.Directory = None,
) -> int:
    """Compare with Redis Streams, RabbitMQ Streams and Poe, in turn.

    Their servers are started on free ports of loopback and end with the command; servers that run already are
    not touched. One client process does the same work with each system, and with a peer in each way of its
    library that may be the fastest: a goal is met if all of these rows meet it. Each row shows messages a
    second, the median of the ratios with the smallest and the largest one, and the goals of this project. A
    peer is skipped where its server or its library is not installed: apt install redis-server
    rabbitmq-server erlang-base; pip install 'quoth[bench]'; Poe, the Erlang ancestor of Quoth, is no
    package: compile github.com/odo/poe and name the folder of its applications in ERL_LIBS. A row that cannot
    be measured names its problem, the rows behind it are measured all the same, and the exit status is 1.
    """
    with options.folder(directory) as made:
        peers = {name: PEERS[name] for name in named or PEERS}
        measured = run(session.printer, peers, made, pairs)
    return CommandStatus.DONE if measured else CommandStatus.FAILED
