"""Runs the background check of sealed segments at intervals, and counts its reports.

A process of its own reads the segments, so that they cost the broker's interpreter no time; a thread of the
broker reads its reports.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections import Counter
from contextlib import suppress
from typing import Any

from quothd.config.config import Config
from quothd.service.log_events import note

FIRST_ROUND_S = 60.0
"""Delay of the first round: by then topics are open and clients are connected."""
AGAIN_S = 60.0
"""A round for which there was no process, or no descriptor, is tried again after so long."""
STOP_S = 1.0
_WHERE = ("start", "end", "records", "ordinal", "after", "next")
"""Bytes of the file, and the records that are missing there."""
WARNINGS_MAX = 100
"""Damages that one round logs; `quoth log verify` reports all of them."""


class Scrubber:
    """Starts a round of the check when it is due. Owned by the front end's thread."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._next = _first_round(config)
        self._process: subprocess.Popen[bytes] | None = None
        self._thread: threading.Thread | None = None
        self._rounds = 0
        self._round: Counter[str] = Counter()
        self._last: Counter[str] = Counter()

    def tick(self, now: float) -> None:
        """Start a round if one is due and none is running."""
        if not self._config.scrub_interval or now < self._next:
            return
        if self._thread is None or not self._thread.is_alive():
            pause = self._config.scrub_interval
            self._next = now + (pause if self._begin() else min(AGAIN_S, pause))

    def configure(self, config: Config) -> None:
        """Apply another configuration."""
        if config.scrub_interval != self._config.scrub_interval:
            self._next = _first_round(config)
        self._config = config

    def counters(self) -> dict[str, int]:
        """Return the finished rounds, and the findings of the last or the running one, whichever has more."""
        found = {name: max(self._last[name], self._round[name]) for name in ("damages", "missing_records")}
        return {
            "scrub_rounds": self._rounds,
            "scrubbed_bytes": self._round["bytes"],
            **{f"scrub_{name}": number for name, number in found.items()},
        }

    def stop(self) -> None:
        """Kill a running round. Does not wait for a process that hangs in a read."""
        if self._process is not None:
            self._process.kill()
        if self._thread is not None:
            self._thread.join(STOP_S)

    def _begin(self) -> bool:
        """Start a round; False if there is no process or no thread for it now."""
        directory, rate = str(self._config.dir), str(self._config.scrub_rate)
        command = [
            sys.executable,
            "-I" if sys.flags.isolated else "-P",
            "-m",
            "quothd.service.scrub_process",
            directory,
            rate,
        ]
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                process_group=0,  # Ctrl-C reaches the broker alone, which then kills it
            )
            thread = threading.Thread(
                target=self._collect, args=(self._process,), name="quoth-scrubber", daemon=True
            )
            thread.start()
            self._thread = thread
        except (OSError, RuntimeError) as problem:
            if self._process is not None and self._process.poll() is None:
                self._process.kill()
            note("scrub_failed", problem=problem)
            return False
        return True

    def _collect(self, process: subprocess.Popen[bytes]) -> None:
        """Count the reports of a round until its end."""
        self._round = Counter()
        with process:
            assert process.stdout is not None
            for line in process.stdout:
                with suppress(ValueError):  # killed in the middle of a line
                    self._count(json.loads(line))
        if process.returncode == 0:
            self._rounds += 1
            self._last = self._round
        elif process.returncode > 0:
            note("scrub_failed", status=process.returncode)

    def _count(self, report: dict[str, Any]) -> None:
        """Count the report on one segment or topic, and log its damages."""
        self._round["bytes"] += report["bytes"]
        if problem := report.get("problem"):
            self._round["damages"] += 1
            note("scrub_failed", problem=problem)
        for damage in report["damages"]:
            self._round["damages"] += 1
            self._round["missing_records"] += max(0, damage["records"])
            if self._round["damages"] <= WARNINGS_MAX:
                where = {name: damage[name] for name in _WHERE}
                note("damage_found", file=damage["path"], problem=damage["text"], **where)


def _first_round(config: Config) -> float:
    """Return the time of the first round by the monotonic clock."""
    return time.monotonic() + min(FIRST_ROUND_S, config.scrub_interval)
