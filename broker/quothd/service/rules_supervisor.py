"""Runs the process of the routing rules while the broker has rules.

The process is started once the topic of the rules exists, and ended with that topic.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from quothd.config.config import Config
from quothd.service.process_supervisor import ProcessSupervisor
from quothwire.security.key_file import Key

RULES_TOPIC = "quoth.rules"
"""The topic whose existence starts the process. It holds the rules."""
_MODULE = "quothrules"


class RulesSupervisor(ProcessSupervisor):
    """Starts the process when there are rules. Owned by the front end's thread.

    urls: those of the broker. has_rules: returns True if the topic of the rules exists. key: that of the
    process, None if clients need none.
    """

    failed, ended = "rules_failed", "rules_ended"

    def __init__(
        self, config: Config, urls: Sequence[str], has_rules: Callable[[], bool], key: Key | None = None
    ) -> None:
        super().__init__("rules", _MODULE, urls, key)
        self._config = config
        self._has_rules = has_rules

    def configure(self, config: Config) -> None:
        """Apply another configuration."""
        self._config = config
        self._look_at = 0.0

    def _is_wanted(self) -> bool:
        return self._config.rules and self._has_rules()
