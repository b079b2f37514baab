"""Reports the position of a reader that keeps it by itself, as a named cursor that the broker shows.

The reader never goes by its report: one that failed is made good by the next.
"""

from __future__ import annotations

from quoth.client import Client
from quoth.groups.cursor import NamedCursor
from quothwire.errors import Conflict, NotFound, error
from quothwire.protocol.group_messages import GroupInfo
from quothwire.protocol.group_settings import CURSOR, check_group

REPORT_S = 5.0
"""Seconds that a broker may take for a report: the reader does not need its success."""


class ReportedCursor:
    """The named cursor of a topic by which one reader shows its position. Belongs to one thread.

    Raises `RequestError` ``bad_group`` for a wrong name.
    """

    def __init__(self, client: Client, topic: str, name: str) -> None:
        self.topic = topic
        self.name = check_group(name)
        self._client = client
        self._cursor: NamedCursor | None = None
        self._reported = -1

    def report(self, pointer: int) -> None:
        """Move the cursor forward to a pointer, up to which everything is done; create it if need be.

        A cursor that a seek has moved is taken as it is, and one that was deleted is created again. Raises
        `Conflict` ``group_exists`` for a group with leases, and as `NamedCursor.commit`.
        """
        if pointer == self._reported:
            return
        if self._cursor is not None:
            try:
                self._cursor.commit(pointer)
            except (Conflict, NotFound):
                self._cursor = None
        if self._cursor is None:
            cursor = self._client.cursor(self.topic, self.name, start=pointer)
            cursor.commit(pointer)
            self._cursor = cursor
        self._reported = pointer


def described(client: Client, topic: str, group: str) -> GroupInfo | None:
    """Describe a group or a named cursor; None if there is none, or no such topic."""
    try:
        return client.group(topic, group, create=False).info()
    except NotFound:
        return None


def refuse_leases(client: Client, topic: str, group: str) -> None:
    """Raise `Conflict` ``group_exists`` if the group has leases: a reader cannot acknowledge for its members.

    No group, and no topic, is no error.
    """
    found = described(client, topic, group)
    if found is not None and found.settings["mode"] != CURSOR:
        text = f"group {group!r} of topic {topic!r} is no cursor: its members acknowledge its records"
        raise error("group_exists", text, "name another one for a reader that reports its position")
