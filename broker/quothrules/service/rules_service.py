"""Follows the topic `quoth.rules` and runs the rule sets in it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from quoth.client import Client
from quoth.timestamps import now
from quothrules.history.rule_history import RuleHistories, RuleHistory
from quothrules.matching.topic_patterns import RULES_TOPIC
from quothrules.service.rule_report import STATS_BYTES, save_state, saved_states
from quothrules.service.running_set import Report, RunningSet
from quothwire.errors import NotFound, QuothError
from quothwire.service.parent_process import report

POLL_S = 1.0
"""Between two looks for topics. A change of rules is seen at once."""
SAVE_S = 2.0
"""Between two saves of a state that changes."""
SAVE_BYTES = STATS_BYTES // 8
"""A state that does not change is saved again after so many bytes of others, before the topic forgets it."""
AWAY_S = 1.0


class RulesService:
    """Runs the rule sets of a broker until it is stopped. Belongs to one thread, except for `stop`."""

    def __init__(self, client: Client, clock: Callable[[], int] = now, report: Report = report) -> None:
        self._client = client
        self._clock = clock
        self._report = report
        self._stopping = threading.Event()
        self._histories = RuleHistories()
        self._log = 0
        self._pointer = 0
        self._running: dict[str, RunningSet] = {}
        self._saved: dict[str, dict[str, Any]] = {}
        self._save_at = 0.0
        self._saved_bytes = 0
        """The bytes of the states that have changed."""
        self._saved_behind: dict[str, int] = {}
        """The value of `_saved_bytes` at the last save of each state."""
        self._problem = ""

    def stop(self) -> None:
        """Let it end. Any thread."""
        self._stopping.set()

    def run(self) -> None:
        """Run all rule sets until it is stopped."""
        try:
            while not self._stopping.is_set():
                try:
                    self._turn()
                    self._problem = ""
                except QuothError as problem:
                    if problem.code != self._problem:
                        self._problem = problem.code
                        self._report("rules_failed", problem=str(problem))
                    self._stopping.wait(AWAY_S)
        finally:
            for running in self._running.values():
                running.close()

    def _turn(self) -> None:
        """Follow the changes, and the topics that there are."""
        if not self._saved and not self._running:
            self._saved = saved_states(self._client)
        self._take_changes()
        topics = self._client.topics()
        for name, history in self._histories.items():
            if name not in self._running:
                saved = self._saved.get(name, {})
                self._running[name] = RunningSet(self._client, history, saved, self._clock, self._report)
            self._running[name].follow(topics)
        self._save()

    def _take_changes(self) -> None:
        """Take the changes of rule sets that have come, and wait for some."""
        try:
            log = self._client.topic(RULES_TOPIC).log
        except NotFound:
            log = 0
        if log != self._log:  # another topic of this name, or none
            self._forget()
            self._log = log
        if not log:
            self._stopping.wait(POLL_S)
            return
        wait = POLL_S if self._pointer else 0.0
        while found := self._client.read(RULES_TOPIC, after=self._pointer, timeout=wait):
            for message in found:
                self._histories.take(message.pointer, message.key, message.value, message.headers)
            self._pointer = found[-1].pointer
            wait = 0.0

    def _forget(self) -> None:
        for running in self._running.values():
            running.close()
        self._running = {}
        self._histories = RuleHistories()
        self._pointer = 0

    def _save(self) -> None:
        """Publish the states that have changed, and those that the topic forgets soon."""
        if time.monotonic() < self._save_at:
            return
        for name, running in self._running.items():
            state = running.state()
            is_changed = state != self._saved.get(name)
            if is_changed or self._saved_bytes - self._saved_behind.get(name, -SAVE_BYTES) >= SAVE_BYTES:
                size = save_state(self._client, name, state)
                self._saved_bytes += size if is_changed else 0
                self._saved[name], self._saved_behind[name] = state, self._saved_bytes
        self._save_at = time.monotonic() + SAVE_S


def histories_of(client: Client) -> dict[str, RuleHistory]:
    """Read the histories of all rule sets of a broker."""
    found = RuleHistories()
    with suppress(NotFound):
        for batch in client.batches(RULES_TOPIC):
            for message in batch:
                found.take(message.pointer, message.key, message.value, message.headers)
    return found
