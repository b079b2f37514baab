"""Describes the groups of a topic for the metrics, now and then, also while no client asks about them."""

from __future__ import annotations

from itertools import islice

from quothd.groups.dead_letters import DeadLetters
from quothd.groups.store import GroupStore
from quothd.metrics.group_metrics import GroupMetrics
from quothd.service.log_events import note
from quothlog.groups.group_state import GroupState
from quothwire.errors import QuothError

REFRESHED_MAX = 100
"""Groups that are looked at in one call: each may take a read of the log's index."""
SHOWN_MAX = 1_000
"""Groups of one topic, the first ones that it had: more would not fit into one reply."""


def lag_of(store: GroupStore, group: GroupState) -> tuple[int, int]:
    """Count the records that are not finished, and those of them that were handed out. May raise OSError."""
    pending = store.count([*group.spans]) if group.spans.unknown else group.spans.known
    return pending + _behind(store, group), pending


def oldest_of(store: GroupStore, group: GroupState) -> int:
    """Return the pointer of the first record that is not finished, 0 for none. May raise OSError."""
    after, newest = group.after, store.log.newest
    return store.log.survey(after).count(after, newest)[0].first if after < newest else 0


def _behind(store: GroupStore, group: GroupState) -> int:
    """Count the records above the cursor."""
    log = store.log
    if group.ordinal >= 0:
        return max(0, log.end_ordinal - max(group.ordinal, log.first_ordinal))
    newest = log.newest
    if group.cursor >= newest:
        return 0
    return log.survey(group.cursor).count(group.cursor, newest)[0].records


class GroupSummaries:
    """The summaries of the groups of one open topic. Owned by the topic."""

    def __init__(self, store: GroupStore, letters: DeadLetters) -> None:
        self._store = store
        self._letters = letters
        self._rows: dict[str, GroupMetrics] = {}
        self._next = 0
        self._failure = ""
        self._is_closed = False

    def refresh(self) -> tuple[GroupMetrics, ...]:
        """Return the summaries; those of the next `REFRESHED_MAX` groups are as of now.

        The log of the groups is read if it is not in memory and records came since. Logs a failure, and
        returns what is known then.
        """
        metadata, newest = self._store.metadata, self._store.log.newest
        known = metadata.group_summaries
        is_current = known is not None and (not known or metadata.summarized == newest)
        if self._is_closed or (is_current and metadata.groups is None):
            return known or ()
        try:
            rows = tuple(self._refreshed())
        except (OSError, QuothError) as problem:
            if self._failure != str(problem):
                note("groups_not_summarized", topic=self._store.topic, problem=problem)
            self._failure = str(problem)
            return known or ()
        self._failure = ""
        metadata.group_summaries, metadata.summarized = rows, newest
        return rows

    def close(self) -> None:
        """Refresh the summaries a last time: the log of the groups is about to be closed."""
        self.refresh()
        self._is_closed = True

    def _refreshed(self) -> list[GroupMetrics]:
        groups = self._store.table().by_name
        names = [*islice(groups, SHOWN_MAX)]
        for at in range(min(len(names), REFRESHED_MAX)):
            name = names[(self._next + at) % len(names)]
            self._rows[name] = self._row(groups[name])
        self._next = (self._next + REFRESHED_MAX) % max(1, len(names))
        self._rows = {name: row for name, row in self._rows.items() if name in groups}
        return [*self._rows.values()]

    def _row(self, group: GroupState) -> GroupMetrics:
        lag, pending = lag_of(self._store, group)
        return GroupMetrics(
            group=group.name,
            mode=group.settings.mode,
            paused=group.is_paused,
            lag=lag,
            oldest=oldest_of(self._store, group) if lag else 0,
            pending=pending,
            in_flight=group.in_flight,
            redelivered=group.counts.redelivered,
            dead=group.counts.dead,
            gone=group.counts.gone,
            used=group.used,
            problem=self._letters.problem(group.name),
        )
