"""The processes that the broker starts: the check of segments, the routing rules, Poe's protocol."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from quothd.config.config import Config
from quothd.keys.broker_keys import POE_CLIENT, RULES_CLIENT
from quothd.service.poe_supervisor import PoeListener, PoeSupervisor
from quothd.service.rules_supervisor import RulesSupervisor
from quothd.service.scrub_supervisor import Scrubber
from quothwire.security.key_file import Key


class ChildProcesses:
    """Starts the processes of one broker when they are due, and ends them. Owned by the front end's thread.

    urls: those of the broker. has_rules: returns True if there are routing rules. poe: the socket for clients
    of Poe, closed by `stop`. keys: those of the processes, by the names of their clients; empty without keys.
    """

    def __init__(
        self,
        config: Config,
        urls: Sequence[str],
        has_rules: Callable[[], bool],
        poe: PoeListener | None,
        keys: Mapping[str, Key],
    ) -> None:
        self.scrubber = Scrubber(config)
        self._rules = RulesSupervisor(config, urls, has_rules, keys.get(RULES_CLIENT))
        self._poe = PoeSupervisor(config, urls, poe, keys.get(POE_CLIENT))

    def tick(self, now: float) -> None:
        """Start and end the processes that are due."""
        self.scrubber.tick(now)
        self._rules.tick(now)
        self._poe.tick(now)

    def configure(self, config: Config) -> None:
        """Apply another configuration."""
        self.scrubber.configure(config)
        self._rules.configure(config)

    def counters(self) -> dict[str, int]:
        """Return the states and the counters of all of them."""
        return {**self.scrubber.counters(), **self._rules.counters(), **self._poe.counters()}

    def stop(self) -> None:
        """Kill the processes. Does not wait for long."""
        self._rules.stop()
        self._poe.stop()
        self.scrubber.stop()
