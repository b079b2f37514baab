"""Judges a client of Quoth by the sessions in sessions/: `python play.py -- DRIVER`, see README.md.

Needs pyzmq, msgpack and xxhash, and nothing of Quoth.
"""

from __future__ import annotations

import argparse
import json
import queue
import sys
import threading
import time
from collections import Counter
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import zmq
from player.broker import ScriptedBroker
from player.deviation import Deviation, TooLate
from player.driver import Driver
from player.play import Play, Unsupported

FOLDER = Path(__file__).parent / "sessions"


def sessions(pattern: str) -> list[dict[str, Any]]:
    """Return the sessions whose names match, in the order of their files."""
    found: list[dict[str, Any]] = []
    for path in sorted(FOLDER.glob("*.json")):
        found += json.loads(path.read_text(encoding="utf-8"))["sessions"]
    return [session for session in found if fnmatchcase(session["name"], pattern)]


def with_more_time(call: dict[str, Any]) -> dict[str, Any]:
    """Return a call with ten times its time, if it has one of its own."""
    return {**call, "timeout_ms": 10 * call["timeout_ms"]} if "timeout_ms" in call else call


class Judge:
    """Plays sessions with several drivers at once, and prints how each ends."""

    def __init__(self, command: list[str], *, strict: bool, verbose: bool) -> None:
        self.counts: Counter[str] = Counter()
        self._command = command
        self._strict = strict
        self._verbose = verbose
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._lock = threading.Lock()

    def judge(self, chosen: list[dict[str, Any]], jobs: int) -> None:
        """Play these sessions, with at most so many drivers at once."""
        waiting: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        for session in chosen:
            waiting.put(session)
        count = min(jobs, len(chosen))
        threads = [threading.Thread(target=self._work, args=(waiting,)) for _ in range(count)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self._context.term()

    def _work(self, waiting: queue.SimpleQueue[dict[str, Any]]) -> None:
        driver = Driver(self._command)
        try:
            while True:
                self._play(waiting.get_nowait(), driver)
        except queue.Empty:
            driver.close()

    def _play(self, session: dict[str, Any], driver: Driver) -> None:
        try:
            self._play_once(session, driver, is_last=False)
        except TooLate:
            calls = [with_more_time(call) for call in session["calls"]]
            self._play_once({**session, "calls": calls}, driver, is_last=True)

    def _play_once(self, session: dict[str, Any], driver: Driver, *, is_last: bool) -> None:
        """Play a session and print how it ends. Raises `TooLate` unless it is the last time."""
        broker = ScriptedBroker(self._context)
        play = Play(session, driver, broker)
        outcome, reason = "PASS", ""
        try:
            play.play()
        except Unsupported as missing:
            outcome, reason = ("FAIL" if self._strict else "SKIP"), f"the client has no {missing}"
        except Deviation as problem:
            if isinstance(problem, TooLate) and not is_last:
                raise
            outcome, reason = "FAIL", str(problem)
            if not play.has_ended:
                driver.kill()
        finally:
            broker.close()
        self._print(session["name"], outcome, reason, play.events)

    def _print(self, name: str, outcome: str, reason: str, events: list[str]) -> None:
        with self._lock:
            self.counts[outcome] += 1
            print(f"{outcome} {name}" + (f": {reason}" if reason else ""), flush=True)
            if self._verbose and outcome == "FAIL":
                print("".join(f"     {event}\n" for event in events), end="", flush=True)


def main() -> int:
    """Run the command line. Returns 0 if no session failed, else 1."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="*", metavar="PATTERN", help="of names, such as 'publish*'")
    parser.add_argument("--jobs", default=4, type=int, help="drivers at once (4)")
    parser.add_argument("--list", action="store_true", help="print the names of the sessions")
    parser.add_argument("--strict", action="store_true", help="a session that is not supported is a failure")
    parser.add_argument("--verbose", action="store_true", help="print what was sent in failed sessions")
    parser.add_argument("driver", nargs="*", help="the command that starts the driver, behind --")
    given = parser.parse_args()
    chosen = sessions(given.only)
    if given.list:
        print("".join(f"{session['name']}\n" for session in chosen), end="")
        return 0
    if not given.driver or not chosen or given.jobs < 1:
        parser.error("a driver, a session and a job are needed")
    began = time.monotonic()
    judge = Judge(given.driver, strict=given.strict, verbose=given.verbose)
    judge.judge(chosen, given.jobs)
    counts = judge.counts
    print(
        f"{counts['PASS']} passed, {counts['FAIL']} failed, {counts['SKIP']} skipped"
        f" in {time.monotonic() - began:.1f} s"
    )
    return int(counts["PASS"] + counts["SKIP"] < len(chosen))


if __name__ == "__main__":
    sys.exit(main())
