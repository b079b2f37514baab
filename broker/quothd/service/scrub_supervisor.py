"""The scrubber: lets a process of its own read all sealed segments now and then, and counts what it tells.

It costs the broker nothing but a thread that reads its lines: a GIL, a page cache and a disk are shared by
whoever serves, so the reading is done elsewhere, at a bounded rate.
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
"""The first round begins a minute after the start, when topics have been opened and clients are back."""
STOP_S = 1.0
WARNINGS_MAX = 100
"""Damages that one round writes down one by one; `quoth log verify` tells all of them."""


class Scrubber:
    """Starts a round when it is due. Owned by the front end's thread."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._next = _first_round(config)
        self._process: subprocess.Popen[bytes] | None = None
        self._thread: threading.Thread | None = None
        self._rounds = 0
        self._round: Counter[str] = Counter()
        self._last: Counter[str] = Counter()

    def tick(self, now: float) -> None:
        """Begin a round if one is due and none is under way."""
        if not self._config.scrub_interval or now < self._next:
            return
        if self._thread is None or not self._thread.is_alive():
            self._next = now + self._config.scrub_interval
            self._begin()

    def configure(self, config: Config) -> None:
        """Go by another configuration from now on."""
        if config.scrub_interval != self._config.scrub_interval:
            self._next = _first_round(config)
        self._config = config

    def counters(self) -> dict[str, int]:
        """What was done, and what the last round that was finished, or the one under way, has found."""
        found = {name: max(self._last[name], self._round[name]) for name in ("damages", "missing_records")}
        return {
            "scrub_rounds": self._rounds,
            "scrubbed_bytes": self._round["bytes"],
            **{f"scrub_{name}": number for name, number in found.items()},
        }

    def stop(self) -> None:
        """Break off what is under way. A process that hangs in the disk is not waited for: it only reads."""
        if self._process is not None:
            self._process.kill()
        if self._thread is not None:
            self._thread.join(STOP_S)

    def _begin(self) -> None:
        directory, rate = str(self._config.dir), str(self._config.scrub_rate)
        command = [sys.executable, "-P", "-m", "quothd.service.scrub_process", directory, rate]
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                process_group=0,  # Ctrl-C is for the broker, which then ends it
            )
            thread = threading.Thread(
                target=self._listen, args=(self._process,), name="quoth-scrubber", daemon=True
            )
            thread.start()
            self._thread = thread
        except (OSError, RuntimeError) as problem:
            if self._process is not None and self._process.poll() is None:
                self._process.kill()
            note("scrub_failed", problem=problem)

    def _listen(self, process: subprocess.Popen[bytes]) -> None:
        """Count what a round tells, to its end."""
        self._round = Counter()
        with process:
            assert process.stdout is not None
            for line in process.stdout:
                with suppress(ValueError):  # it was killed in the middle of a line
                    self._count(json.loads(line))
        if process.returncode == 0:
            self._rounds += 1
            self._last = self._round
        elif process.returncode > 0:
            note("scrub_failed", status=process.returncode)

    def _count(self, told: dict[str, Any]) -> None:
        """Take in what was told of one segment."""
        self._round["bytes"] += told["bytes"]
        if problem := told.get("problem"):
            self._round["damages"] += 1
            note("scrub_failed", problem=problem)
        for damage in told["damages"]:
            self._round["damages"] += 1
            self._round["missing_records"] += max(0, damage["records"])
            if self._round["damages"] <= WARNINGS_MAX:
                note("damage_found", file=damage["path"], problem=damage["text"], **_where(damage))


def _where(damage: dict[str, Any]) -> dict[str, int]:
    """The stretch of the file, and the records that are missing there."""
    return {name: damage[name] for name in ("start", "end", "records", "ordinal", "after", "next")}


def _first_round(config: Config) -> float:
    """When to begin with it, by the monotonic clock."""
    return time.monotonic() + min(FIRST_ROUND_S, config.scrub_interval)
