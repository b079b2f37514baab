"""The versions of one rule set, and what they mean for the groups on the topics that it reads.

A *run* is a row of versions that go on from each other: it begins with a new rule set, or with a version that
has a place to begin of its own. Each run has groups of its own, so nothing has to be remembered about a group
that was moved, and a crash in between changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from quoth.rules.rule_change import REMOVE, RuleChange, change_of
from quothrules.file.rule_file import parse_rule_file
from quothrules.rule import RuleSet
from quothwire.errors import QuothError
from quothwire.protocol.group_messages import END


class RuleVersion(NamedTuple):
    """One version. number: counted from 1. run: see the module. begin: a pointer; new groups begin above it.

    rules: None for a removal, and for a file that cannot be parsed, for which `problem` has the reason.
    """

    number: int
    run: int
    begin: int
    change: RuleChange
    rules: RuleSet | None
    problem: str = ""


class GroupPlace(NamedTuple):
    """A group that a rule set has on a topic. begin: the pointer above which it begins if it is created."""

    name: str
    delay_us: int
    begin: int


class RuleHistory:
    """The versions of one rule set, oldest first."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.versions: list[RuleVersion] = []

    def take(self, change: RuleChange) -> None:
        """Add a version."""
        last = self.versions[-1] if self.versions else None
        rules, problem = None, ""
        if change.action != REMOVE:
            try:
                rules = parse_rule_file(change.text, self.name, self.name)
            except QuothError as wrong:
                problem = wrong.text
        begins = self.current is None or change.begin is not None
        run = (last.run if last is not None else 0) + (begins and rules is not None)
        begin = change.pointer if change.begin is None or change.begin == END else change.begin
        number = 1 + (last.number if last is not None else 0)
        self.versions.append(RuleVersion(number, run, begin, change, rules, problem))

    @property
    def current(self) -> RuleVersion | None:
        """The version that has effect: the newest one that can be parsed; None if the set is removed."""
        for version in reversed(self.versions):
            if version.rules is not None:
                return version
            if version.change.action == REMOVE:
                return None
        return None

    @property
    def problem(self) -> str:
        """The reason why the newest version has no effect; empty if it has."""
        return self.versions[-1].problem if self.versions else ""

    def places(self, topic: str) -> list[GroupPlace]:
        """Return the groups that the rule set has now on a topic; none if it does not read it."""
        current = self.current
        if current is None or current.rules is None or not current.rules.topics.matches(topic):
            return []
        rules, run = current.rules, current.run
        return [
            GroupPlace(rules.group(run, delay), delay, self._begin(topic, delay)) for delay in rules.delays
        ]

    def former_groups(self, topic: str) -> set[str]:
        """Return the names of the groups that it may have on a topic, and does not use any more."""
        ever = {
            version.rules.group(version.run, delay)
            for version in self.versions
            if version.rules is not None and version.rules.topics.matches(topic)
            for delay in version.rules.delays
        }
        return ever - {place.name for place in self.places(topic)}

    def _begin(self, topic: str, delay_us: int) -> int:
        """Return where a group begins: with the first version in a row that reads the topic with a delay."""
        begin = 0
        run = self.versions[-1].run
        for version in reversed(self.versions):
            rules = version.rules
            if version.run != run or (version.change.action == REMOVE):
                break
            if rules is None:  # it had no effect
                continue
            if not rules.topics.matches(topic) or delay_us not in rules.delays:
                break
            begin = version.begin
        return begin


class RuleHistories(dict[str, RuleHistory]):
    """The histories of all rule sets, by name. skipped: the number of records that are no changes."""

    skipped = 0

    def take(self, pointer: int, key: bytes | None, value: bytes, headers: Mapping[str, bytes]) -> str:
        """Add a record of the topic. Returns the name of the rule set, empty for what is no change."""
        try:
            change = change_of(pointer, key, value, headers)
        except QuothError:
            self.skipped += 1
            return ""
        self.setdefault(change.name, RuleHistory(change.name)).take(change)
        return change.name
