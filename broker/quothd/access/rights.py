"""The rights of clients, and the right that each operation needs.

A right holds for the topics of its patterns in the clients file. No right includes another one.

    publish  append records, with or without a transaction; a publish creates its topic
    read     read records, and what is known about ranges of them
    group    use the groups of a topic: create one, read records through it, settle them, move it; the first
             group creates its topic only for a client with publish or admin there
    admin    create, change, trim, roll and delete a topic; change and delete its groups

Any right on a topic makes it visible: the client can describe it, finds it in lists, and gets its
announcements. Without one the answer is `denied`, the same whether the topic exists or not.

The topics of the system begin with ``quoth.``. To write to one takes admin in place of publish: the one who
writes to ``quoth.rules`` lets the broker move records between any topics, so that an admin of this topic is
in effect an admin of all.

The broker writes the dead letters of a group. A group that a client creates, or changes, may name only a
topic to which this client may publish. The topic that a group has by default, ``TOPIC.GROUP.dead``, needs no
right, unless the group's name has a dot: ``a.b.c.dead`` could be of group ``b.c`` of ``a``, or of group ``c``
of ``a.b``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from types import MappingProxyType

from quothd.access.quota import Quota, quota_exceeded
from quothd.access.topic_scope import TopicScope
from quothwire.errors import QuothError, error
from quothwire.protocol.group_settings import AUTO, CURSOR, GroupSettings
from quothwire.protocol.messages import Operation

SYSTEM_TOPICS = "quoth."
"""The topics of the system begin so."""


class Right(StrEnum):
    """A right, by its key in the clients file."""

    PUBLISH = "publish"
    READ = "read"
    GROUP = "group"
    ADMIN = "admin"


_PUBLISH, _READ, _GROUP, _ADMIN = ((right,) for right in Right)
_GROUP_OR_ADMIN = (Right.GROUP, Right.ADMIN)

RIGHTS: Mapping[Operation, tuple[Right, ...]] = MappingProxyType(
    {
        Operation.HELLO: (),
        Operation.PING: (),
        Operation.LIST: (),
        Operation.STATUS: (),
        Operation.METRICS: (),
        Operation.PUBLISH: _PUBLISH,
        Operation.STAGE: _PUBLISH,
        Operation.PUBLISH_STAGED: _PUBLISH,
        Operation.ABORT: _PUBLISH,
        Operation.TRANSACTION: _PUBLISH,
        Operation.FETCH: _READ,
        Operation.ADVANCE: _READ,
        Operation.SPLIT: _READ,
        Operation.COUNT: _READ,
        Operation.DESCRIBE: tuple(Right),
        Operation.CREATE: _ADMIN,
        Operation.UPDATE: _ADMIN,
        Operation.DELETE: _ADMIN,
        Operation.TRIM: _ADMIN,
        Operation.ROLL: _ADMIN,
        Operation.OPEN_GROUP: _GROUP,
        Operation.GROUP_FETCH: _GROUP,
        Operation.GROUP_SETTLE: _GROUP,
        Operation.COMMIT_CURSOR: _GROUP,
        Operation.DESCRIBE_GROUP: _GROUP_OR_ADMIN,
        Operation.LIST_GROUPS: _GROUP_OR_ADMIN,
        Operation.LIST_PENDING: _GROUP_OR_ADMIN,
        Operation.SEEK_GROUP: _GROUP_OR_ADMIN,
        Operation.UPDATE_GROUP: _ADMIN,
        Operation.DELETE_GROUP: _ADMIN,
    }
)
"""Any one of these rights on the topic allows the operation. Without any: every client may ask for it.

The answers to list, status and metrics have only what the client may see.
"""


@dataclass(frozen=True, eq=False)
class KnownClient:
    """One client of the clients file. Immutable, any thread.

    keys: its public keys; two while one replaces the other. limits: its quotas; none for a missing one.
    """

    name: str
    keys: tuple[str, ...] = ()
    scopes: Mapping[Right, TopicScope] = field(default_factory=dict)
    limits: Mapping[Quota, int] = field(default_factory=dict)

    @cached_property
    def visible(self) -> TopicScope:
        """The topics on which the client has any right."""
        return TopicScope(pattern for scope in self.scopes.values() for pattern in scope.patterns)

    @cached_property
    def is_operator(self) -> bool:
        """True for an admin of all topics, who sees the state of the whole broker."""
        return self._scope(Right.ADMIN).is_everything

    def has(self, right: Right, topic: str) -> bool:
        """Return True if the client has a right on a topic."""
        return topic in self._scope(_needed(right, topic))

    def may_create(self, topic: str) -> bool:
        """Return True if the client may create a topic, by an operation that it has the right for."""
        return self.has(Right.PUBLISH, topic) or self.has(Right.ADMIN, topic)

    def may(self, operation: Operation, topic: str) -> bool:
        """Return True if one of the client's rights on a topic allows an operation."""
        return any(self.has(right, topic) for right in RIGHTS[operation])

    def check(self, operation: Operation, topic: str) -> None:
        """Raise ``denied`` unless the client may ask for an operation on a topic."""
        rights = RIGHTS[operation]
        if not self.keys:
            raise error("denied", "the broker does not know this connection's key any more")
        if rights and not self.may(operation, topic):
            needed = " or ".join(dict.fromkeys(_needed(right, topic) for right in rights))
            raise self._denied(f"{operation.name.lower().replace('_', ' ')} needs {needed} on {topic!r}")

    def check_limit(self, quota: Quota, used: int) -> None:
        """Raise the error of a quota if so much leaves no room for more."""
        limit = self.limits.get(quota)
        if limit is not None and used >= limit:
            raise quota_exceeded(self.name, quota, limit)

    def check_dead_letters(self, topic: str, group: str, settings: GroupSettings) -> None:
        """Raise ``denied`` unless the client may let a group of a topic write its dead letters."""
        target = settings.dead_letter_topic(topic, group)
        is_own = settings.dead_letter == AUTO and "." not in group
        if settings.mode == CURSOR or not target or is_own or self.has(Right.PUBLISH, target):
            return
        problem = self._denied(f"the dead letters of group {group!r} need publish on {target!r}")
        problem.hint = "get that right, give the group no dead-letter topic, or a name without dots"
        raise problem

    def _scope(self, right: Right) -> TopicScope:
        return self.scopes.get(right, _NOTHING)

    def _denied(self, text: str) -> QuothError:
        return error("denied", f"{text}, which client {self.name!r} does not have")


def _needed(right: Right, topic: str) -> Right:
    """Return the right that is needed on a topic in place of another one."""
    is_system = right is Right.PUBLISH and topic.startswith(SYSTEM_TOPICS)
    return Right.ADMIN if is_system else right


_NOTHING = TopicScope()
STRANGER = KnownClient("")
"""A client whose key is in the clients file no more. It may do nothing."""
