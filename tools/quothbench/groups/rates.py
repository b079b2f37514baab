"""Rates: the records a second of members, beside a plain reader and beside the consumers of other systems."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import NamedTuple

from quothbench.figures import NO_GOAL, Goal, alternate
from quothbench.groups import quoth_members
from quothbench.groups.consuming import ConsumerPeer, ConsumerWay, RecordUnit
from quothbench.groups.rows import GroupRows
from quothbench.load.clients import Clients
from quothbench.load.servers import own_broker
from quothbench.peers.comparison import PeerName
from quothwire.errors import QuothError

MEMBERS = (1, 4, 16)
READER_GOALS = {RecordUnit.BATCHES: Goal(0.4)}
PEER_GOALS = {(PeerName.REDIS, RecordUnit.BATCHES): Goal(5, 10)}
MESSAGES_PART = 5
UNIT = "records/s"


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
            url = self._stored(stack, "plain")
            one = stack.enter_context(Clients(1))
            for count in self.members:
                several = stack.enter_context(Clients(count))
                for unit, records in self.stored.items():
                    read = partial(self._read, one, url, unit)
                    pairs = alternate(read, partial(self._consume, several, url, unit), self.pairs)
                    goal = READER_GOALS.get(unit, NO_GOAL)
                    self.rows.compare(_members(count, unit), UNIT, records, "a plain reader", pairs, goal)

    def beside_peer(self, name: PeerName, consumers: ConsumerPeer) -> bool:
        """Measure beside each way of a peer. Returns True if every row could be measured."""
        peer = consumers.peer
        whole = True
        try:
            with ExitStack() as stack:
                url = self._stored(stack, f"quoth-{name}")
                address = stack.enter_context(peer.serving(self.directory / name))
                peer.store(address)
                for count in self.members:
                    several = stack.enter_context(Clients(count))
                    for way in consumers.ways:
                        whole &= self._beside_way(several, name, way, address, url)
        except QuothError as problem:
            self.rows.failed("server", UNIT, name, problem.text)
            whole = False
        return whole

    def _beside_way(
        self, clients: Clients, name: PeerName, way: ConsumerWay, address: object, url: str
    ) -> bool:
        figure, beside = _members(clients.count, way.unit), f"{name}, {way.name}"
        goal = PEER_GOALS.get((name, way.unit), NO_GOAL)
        theirs, ours = partial(way.measure, clients, address), partial(self._consume, clients, url, way.unit)
        try:
            pairs = alternate(theirs, ours, self.pairs)
        except QuothError as problem:
            self.rows.failed(figure, UNIT, beside, problem.text, goal)
            return False
        self.rows.compare(figure, UNIT, way.records, beside, pairs, goal)
        return True

    def _stored(self, stack: ExitStack, name: str) -> str:
        """Run a broker that has the records; return its address."""
        url = stack.enter_context(own_broker(self.directory / name)).url
        for unit, records in self.stored.items():
            quoth_members.store(url, unit, records)
        return url

    def _read(self, clients: Clients, url: str, unit: RecordUnit) -> float:
        records = self.stored[unit]
        return records / quoth_members.read(clients, url, unit, records)

    def _consume(self, clients: Clients, url: str, unit: RecordUnit) -> float:
        records = self.stored[unit]
        return records / quoth_members.consume(clients, url, unit, records)


def stored(records: int) -> dict[RecordUnit, int]:
    """Return the records to read in each unit: fewer message by message, which is slower."""
    return {RecordUnit.BATCHES: records, RecordUnit.MESSAGES: records // MESSAGES_PART}


def conditions(consumers: Mapping[PeerName, ConsumerPeer]) -> dict[str, str]:
    """Return the versions of peers, or the reasons for which they are skipped."""
    peers = {str(name): peer for name, (peer, _) in consumers.items()}
    return {
        name: f"skipped: {missing}" if (missing := peer.missing()) else f"{peer.versions()}; {peer.promise}"
        for name, peer in peers.items()
    }


def _members(count: int, unit: RecordUnit) -> str:
    return f"{count} member{'s' if count > 1 else ''}, {unit}"
