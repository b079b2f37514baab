"""Rates: the records a second of members, beside a plain reader and beside the consumers of other systems."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import NamedTuple

from quothbench.figures import NO_GOAL, Goal, alternate
from quothbench.groups import quoth_members
from quothbench.groups.consuming import ConsumerPeer
from quothbench.groups.rows import GroupRows
from quothbench.load.clients import Clients
from quothbench.load.servers import own_broker
from quothbench.peers.comparison import PeerName
from quothwire.errors import QuothError

STORED = 1_000_000
MEMBERS = (1, 4, 16)
RECORDS_MAX = 10_000
"""Records of a fetch: the default of `batches`."""
PLAIN_GOAL = Goal(0.4)
PEER_GOALS = {PeerName.REDIS: Goal(5, 10)}
UNIT = "records/s"


class RateBench(NamedTuple):
    """Measures members, each a process, in turn with something else. records: in the topic."""

    directory: Path
    rows: GroupRows
    members: Sequence[int]
    pairs: int
    records: int = STORED

    def beside_reader(self) -> None:
        """Measure beside a plain reader, which acknowledges nothing."""
        with ExitStack() as stack:
            url = self._stored(stack, "plain")
            one = stack.enter_context(Clients(1))
            for count in self.members:
                several = stack.enter_context(Clients(count))
                read = partial(self._read, one, url)
                pairs = alternate(read, partial(self._consume, several, url), self.pairs)
                name = "1 reader, batches()"
                self.rows.compare(_members(count), UNIT, self.records, name, pairs, PLAIN_GOAL)

    def beside_peer(self, name: PeerName, consumers: ConsumerPeer) -> bool:
        """Measure beside each way of a peer. Returns True if every row could be measured."""
        peer, ways = consumers
        goal = PEER_GOALS.get(name, NO_GOAL)
        whole = True
        try:
            with ExitStack() as stack:
                url = self._stored(stack, f"quoth-{name}")
                address = stack.enter_context(peer.serving(self.directory / name))
                peer.store(address)
                for count in self.members:
                    several = stack.enter_context(Clients(count))
                    for way in ways:
                        cells = (_members(count), UNIT)
                        beside = f"{name} {way.name}"
                        theirs = partial(way.measure, several, address)
                        ours = partial(self._consume, several, url)
                        try:
                            pairs = alternate(theirs, ours, self.pairs)
                            self.rows.compare(*cells, self.records, beside, pairs, goal)
                        except QuothError as problem:
                            self.rows.failed(*cells, beside, problem.text, goal)
                            whole = False
        except QuothError as problem:
            self.rows.failed("server", UNIT, name, problem.text)
            whole = False
        return whole

    def _stored(self, stack: ExitStack, name: str) -> str:
        """Run a broker that has the records; return its address."""
        url = stack.enter_context(own_broker(self.directory / name)).url
        quoth_members.store(url, self.records)
        return url

    def _read(self, clients: Clients, url: str) -> float:
        return self.records / quoth_members.read(clients, url, self.records)

    def _consume(self, clients: Clients, url: str) -> float:
        return self.records / quoth_members.consume(clients, url, self.records, RECORDS_MAX)


def conditions(consumers: Mapping[PeerName, ConsumerPeer]) -> dict[str, str]:
    """Return the versions of peers, or the reasons for which they are skipped."""
    peers = {str(name): peer for name, (peer, _) in consumers.items()}
    return {
        name: f"skipped: {missing}" if (missing := peer.missing()) else f"{peer.versions()}; {peer.promise}"
        for name, peer in peers.items()
    }


def _members(count: int) -> str:
    return f"{count} member" if count == 1 else f"{count} members"
