"""Runs the process of the routing rules while the broker has rules, and counts its restarts.

The process is a client as any other. It is started once the topic of the rules exists, started again if it
ends, and killed with the broker: its death loses and doubles nothing.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from quothd.config.config import Config
from quothd.service.log_events import EVENTS, note
from quothwire.security.key_file import Key

RULES_TOPIC = "quoth.rules"
"""The topic whose existence starts the process. It holds the rules."""
BACKOFF_S, BACKOFF_MAX_S = 0.5, 60.0
"""Pause before a process that has ended is started again; it doubles."""
HEALTHY_S = 60.0
"""A process that ran for longer begins with the shortest pause again."""
LOOK_S = 0.25
"""Between two looks at the process and its topic: the loop of the front end runs far more often."""
STOP_S = 1.0
_MODULE = "quothrules"
"""Named and not imported: the broker has none of its code."""


class RulesSupervisor:
    """Starts the process when it is due. Owned by the front end's thread.

    urls: those of the broker. has_rules: returns True if the topic of the rules exists. key: that of the
    process, None if clients need none.
    """

    def __init__(
        self, config: Config, urls: Sequence[str], has_rules: Callable[[], bool], key: Key | None = None
    ) -> None:
        self._config = config
        self._key = key
        self._url = next((url for url in urls if not url.startswith("inproc:")), "")
        self._has_rules = has_rules
        self._process: subprocess.Popen[bytes] | None = None
        self._thread: threading.Thread | None = None
        self._pause = BACKOFF_S
        self._started = self._next = self._look_at = 0.0
        self._starts = 0

    def tick(self, now: float) -> None:
        """Start the process if it is due, or end it if there are no rules any more."""
        if now < self._look_at:
            return
        self._look_at = now + LOOK_S
        process = self._process
        if process is not None and process.poll() is not None:
            self._take_end(process, now)
        is_wanted = bool(self._config.rules and self._url) and self._has_rules()
        if not is_wanted and self._process is not None:
            self.stop()
        elif is_wanted and self._process is None and now >= self._next:
            self._start(now)

    def configure(self, config: Config) -> None:
        """Apply another configuration."""
        self._config = config
        self._look_at = 0.0

    def counters(self) -> dict[str, int]:
        """Return whether the process runs, and how often it was started again."""
        return {"rules_running": int(self._process is not None), "rules_restarts": max(0, self._starts - 1)}

    def stop(self) -> None:
        """Kill the process. Does not wait for long."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
        if self._thread is not None:
            self._thread.join(STOP_S)

    def _start(self, now: float) -> None:
        command = [
            sys.executable,
            "-I" if sys.flags.isolated else "-P",
            "-m",
            _MODULE,
            self._url,
            "--supervised",
        ]
        if self._key is not None:
            command.append("--key-on-stdin")
        try:
            process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,  # its end is the end of the broker
                stdout=subprocess.PIPE,
                process_group=0,  # Ctrl-C reaches the broker alone, which then kills it
            )
            self._hand_over_key(process)
            self._process, self._started = process, now
            self._starts += 1
            thread = threading.Thread(target=_collect, args=(process,), name="quoth-rules", daemon=True)
            thread.start()
            self._thread = thread
        except (OSError, RuntimeError) as problem:
            self.stop()
            self._delay(now)
            note("rules_failed", problem=problem)

    def _hand_over_key(self, process: subprocess.Popen[bytes]) -> None:
        """Write the key to the process: other programs may see its arguments and its variables."""
        if self._key is not None:
            assert process.stdin is not None
            with suppress(BrokenPipeError):  # it has ended already, see `_take_end`
                process.stdin.write(json.dumps(self._key).encode() + b"\n")
                process.stdin.flush()

    def _take_end(self, process: subprocess.Popen[bytes], now: float) -> None:
        """Plan the next start behind the end of a process."""
        self._process = None
        if now - self._started > HEALTHY_S:
            self._pause = BACKOFF_S
        note("rules_ended", status=process.returncode, again_in=self._pause)
        self._delay(now)

    def _delay(self, now: float) -> None:
        """Plan the next start."""
        self._next = now + self._pause
        self._pause = min(2 * self._pause, BACKOFF_MAX_S)


def _collect(process: subprocess.Popen[bytes]) -> None:
    """Log the reports of a process until its end."""
    with process:
        assert process.stdout is not None
        for line in process.stdout:
            with suppress(ValueError, AttributeError, TypeError):  # killed in the middle of a line
                _log(json.loads(line))


def _log(report: dict[str, Any]) -> None:
    event = report.pop("event")
    if event in EVENTS and event.startswith("rules_"):
        note(event, **report)
