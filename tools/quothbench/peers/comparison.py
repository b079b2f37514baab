"""The comparison: each peer and Quoth in turn, with its server beside an idle Quoth and no other one."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path

from quothbench.figures import Goal, Spread, alternate
from quothbench.load.clients import Clients
from quothbench.load.driver import VALUE
from quothbench.peers import quoth
from quothbench.peers.rabbitmq import RABBITMQ
from quothbench.peers.redis import REDIS
from quothbench.peers.work import Side, Way, Work
from quothbench.report import Column, Report, count, factor, goal_columns, spread
from quothcli.printing.output import Printer
from quothwire.errors import QuothError


class Name(StrEnum):
    """The peers."""

    REDIS = "redis"
    RABBITMQ = "rabbitmq"


PEERS = {Name.REDIS: REDIS, Name.RABBITMQ: RABBITMQ}
GOALS = {
    Work.PUBLISH: Goal(10, 15),
    Work.SEND: Goal(2, 4),
    Work.BATCHES: Goal(8, 15),
    Work.READ: Goal(3, 5),
    Work.RAW_WRITE: Goal(4, 6),
    Work.RAW_READ: Goal(),
}
COLUMNS = (
    Column("work", "work", width=17),
    Column("peer", "peer"),
    Column("durability", "durability", width=10),
    Column("way", "way", width=21),
    Column("peer_messages", "messages/s", count, 10),
    Column("quoth_messages", f"quoth, {quoth.DURABILITY}", count, 14),
    Column("ratio", "ratio", spread, 17),
    *goal_columns(factor, 5),
    Column("problem", "problem", width=0),
)
UNKNOWN = (None, None, None)
"""The figures of a row that could not be measured."""
TRIALS = 5
"""Of each way: with fewer a noisy machine picks a slow one, to the favour of whoever has no choice."""


def run(printer: Printer, named: Sequence[Name], directory: Path, pairs: int) -> bool:
    """Compare with each of the peers that are named and installed, a row for each work.

    Returns True if every row could be measured. A row that fails names its problem; the next one follows.
    """
    whole = True
    reasons = {name: PEERS[name].missing() for name in dict.fromkeys(named)}
    report = Report(printer, "peers", _conditions(reasons, pairs), COLUMNS)
    for name in (name for name, reason in reasons.items() if not reason):
        try:
            with (
                Clients(1) as clients,
                quoth.serving(directory / f"quoth-{name}", clients) as ours,
                PEERS[name].serving(directory / name, clients) as theirs,
            ):
                whole &= Comparison(name, theirs, ours, report, pairs).run()
        except QuothError as problem:
            report.row("server", name, PEERS[name].durability, None, *UNKNOWN, *Goal(), problem.text)
            whole = False
    return whole


class Comparison:
    """Compares with one peer."""

    def __init__(self, name: Name, theirs: Side, ours: Side, report: Report, pairs: int) -> None:
        self._name = name
        self._theirs = theirs
        self._ours = ours
        self._report = report
        self._pairs = pairs

    def run(self) -> bool:
        """Measure every work of this peer. Returns True if all of it could be measured."""
        whole = True
        for work, goal in GOALS.items():
            if ways := self._theirs.ways(work):
                whole &= self._measure(work, goal, ways)
        return whole

    def _measure(self, work: Work, goal: Goal, ways: Sequence[Way]) -> bool:
        """Print the rows of one work: the peer's fastest way, and each other way that is like Quoth's."""
        way = None
        try:
            best = fastest(ways)
            for way in (best, *(one for one in ways if one.alike and one is not best)):
                self._row(work, way, *self._compare(work, way), *goal, None)
        except QuothError as problem:
            self._row(work, way, *UNKNOWN, *goal, problem.text)
            return False
        return True

    def _compare(self, work: Work, way: Way) -> tuple[float, float, Spread]:
        """Messages a second of the peer and of Quoth, and the ratios of the two."""
        ours = fastest(self._ours.ways(work))
        pairs = alternate(way.measure, ours.measure, self._pairs)
        return (
            Spread.of([theirs for theirs, _ in pairs]).median,
            Spread.of([ours for _, ours in pairs]).median,
            Spread.of([ours / theirs for theirs, ours in pairs]),
        )

    def _row(self, work: Work, way: Way | None, *figures: object) -> None:
        durability = PEERS[self._name].durability
        self._report.row(work, self._name, durability, way and way.name, *figures)


def fastest(ways: Sequence[Way]) -> Way:
    """The one that is fastest here: they are tried in turn, and the best of its trials counts."""
    if len(ways) == 1:
        return ways[0]
    best = [0.0] * len(ways)
    for _ in range(TRIALS):
        best = [max(rate, way.measure()) for rate, way in zip(best, ways, strict=True)]
    return ways[best.index(max(best))]


def _conditions(reasons: dict[Name, str], pairs: int) -> dict[str, str | int]:
    """What the figures depend on, and who is left out for which reason."""
    told = {
        name.value: f"skipped: {reason}" if reason else f"{PEERS[name].versions()}; {PEERS[name].promise}"
        for name, reason in reasons.items()
    }
    return {
        **told,
        "quoth": f"{quoth.DURABILITY}: {quoth.PROMISE}",
        "load": f"values of {len(VALUE)} bytes, 1 client process, loopback",
        "pairs": pairs,
    }
