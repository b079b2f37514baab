"""Rates: the records a second of members, beside a plain reader and beside the consumers of other systems."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import NamedTuple

from quothbench.figures import NO_GOAL, Goal, alternate
from quothbench.groups import quoth_members
from quothbench.groups.consuming import ConsumerPeer, ConsumerWay, RecordUnit
from quothbench.groups.quoth_members import Taken
from quothbench.groups.rows import GroupRows
from quothbench.load.clients import Clients
from quothbench.load.servers import Target, difference, own_broker
from quothbench.peers.comparison import PeerName
from quothwire.errors import QuothError

MEMBERS = (1, 4, 16)
READER_GOAL = Goal(0.4)
PEER_GOALS = {PeerName.REDIS: Goal(5, 10)}
SINGLE_PART = 5
UNIT = "records/s"
PROCESSOR_UNIT = "per cpu s"


class Rates(NamedTuple):
    """Records a second, and a second of processor time of broker and clients; 0 where that is unknown."""

    by_clock: float
    by_processor: float


class RateBench(NamedTuple):
    """Measures members, each a process, in turn with something else. stored: the records of each topic."""

    directory: Path
    rows: GroupRows
    members: Sequence[int]
    pairs: int
    stored: Mapping[RecordUnit, int]

    def beside_reader(self) -> None:
        """Measure beside a plain reader, which acknowledges nothing."""
        with ExitStack() as stack:
            broker = self._stored(stack, "plain")
            one = stack.enter_context(Clients(1))
            for count in self.members:
                several = stack.enter_context(Clients(count))
                for unit in self.stored:
                    read = partial(self._rates, quoth_members.read, one, broker, unit)
                    consume = partial(self._rates, quoth_members.consume, several, broker, unit)
                    self._beside_reader(_members(count, unit), unit, alternate(read, consume, self.pairs))

    def beside_peer(self, name: PeerName, consumers: ConsumerPeer) -> bool:
        """Measure beside each way of a peer. Returns True if every row could be measured."""
        peer = consumers.peer
        whole = True
        try:
            with ExitStack() as stack:
                broker = self._stored(stack, f"quoth-{name}")
                address = stack.enter_context(peer.serving(self.directory / name))
                peer.store(address)
                for count in self.members:
                    several = stack.enter_context(Clients(count))
                    for way in consumers.ways:
                        whole &= self._beside_way(several, name, way, address, broker)
        except QuothError as problem:
            self.rows.failed("server", UNIT, name, problem.text)
            whole = False
        return whole

    def _beside_reader(self, figure: str, unit: RecordUnit, pairs: Sequence[tuple[Rates, Rates]]) -> None:
        """Print the rates by the clock and by processor time."""
        goal = NO_GOAL if unit is RecordUnit.SINGLE else READER_GOAL
        cells = self.stored[unit], "a plain reader"
        by_clock = [(one.by_clock, other.by_clock) for one, other in pairs]
        self.rows.compare(figure, UNIT, *cells, by_clock, goal)
        by_processor = [(one.by_processor, other.by_processor) for one, other in pairs]
        if all(one and other for one, other in by_processor):
            self.rows.compare("  by processor", PROCESSOR_UNIT, *cells, by_processor)

    def _beside_way(
        self, clients: Clients, name: PeerName, way: ConsumerWay, address: object, broker: Target
    ) -> bool:
        figure, beside = _members(clients.count, way.unit), f"{name}, {way.name}"
        goal = NO_GOAL if way.unit is RecordUnit.SINGLE else PEER_GOALS.get(name, NO_GOAL)
        theirs = partial(way.measure, clients, address)
        ours = partial(self._rates, quoth_members.consume, clients, broker, way.unit)
        try:
            pairs = alternate(theirs, lambda: ours().by_clock, self.pairs)
        except QuothError as problem:
            self.rows.failed(figure, UNIT, beside, problem.text, goal)
            return False
        self.rows.compare(figure, UNIT, way.records, beside, pairs, goal)
        return True

    def _stored(self, stack: ExitStack, name: str) -> Target:
        """Run a broker that has the records."""
        broker = stack.enter_context(own_broker(self.directory / name))
        for unit, records in self.stored.items():
            quoth_members.store(broker.url, unit, records)
        return broker

    def _rates(self, take: Callable[..., Taken], clients: Clients, broker: Target, unit: RecordUnit) -> Rates:
        """Let clients take all records once."""
        records, before = self.stored[unit], broker.cpu()
        taken = take(clients, broker.url, unit, records)
        used = difference(broker.cpu(), before)
        return Rates(records / taken.seconds, records / (taken.cpu + used) if used else 0.0)


def stored(records: int) -> dict[RecordUnit, int]:
    """Return the records to take in each unit: fewer one by one, which is slower."""
    return {**dict.fromkeys(RecordUnit, records), RecordUnit.SINGLE: records // SINGLE_PART}


def conditions(consumers: Mapping[PeerName, ConsumerPeer]) -> dict[str, str]:
    """Return the versions of peers, or the reasons for which they are skipped."""
    peers = {str(name): peer for name, (peer, _) in consumers.items()}
    return {
        name: f"skipped: {missing}" if (missing := peer.missing()) else f"{peer.versions()}; {peer.promise}"
        for name, peer in peers.items()
    }


def _members(count: int, unit: RecordUnit) -> str:
    return f"{count} member{'s' if count > 1 else ''}, {unit}"
