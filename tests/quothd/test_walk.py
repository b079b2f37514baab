"""The way of a publish and of a read through the broker, compared with DESIGN.md."""

from __future__ import annotations

import re
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from kit.broker.peers import FastPeer, Peers
from kit.deadlines import DEADLINE_S, eventually
from kit.disk.logs import encoded
from quothd import Broker
from quothd.threads import stall_guard
from quothwire import native
from quothwire.protocol.messages import Fetch, Publish

ROOT = Path(__file__).parents[2]
DESIGN = (ROOT / "broker/DESIGN.md").read_text(encoding="utf-8")
FOLDERS = {"quothd": "broker", "quothlog": "broker", "quothwire": "client/python"}
FILES_MAX, CALLS_MAX = 20, 110
"""Of a publish. It crossed 34 files and 170 calls while a topic had many owners."""
ROUNDS = 15

Step = tuple[str, str]
"""A call in the front end: the file and the name of the function."""


class Tracer:
    """Records the Python calls of the front end's thread, while it is on."""

    def __init__(self) -> None:
        self.is_on = False
        self.steps: list[Step] = []

    def __call__(self, frame: FrameType, event: str, _argument: Any) -> None:
        if self.is_on and event == "call" and threading.current_thread().name == "quoth-front-end":
            code = frame.f_code
            self.steps.append((code.co_filename, code.co_qualname))

    def walk(self) -> list[Step]:
        """Return the steps from the receipt of the request to the last frame of its reply."""
        first = next(row for row, (_, name) in enumerate(self.steps) if name == "receive_messages")
        last = max(row for row, (_, name) in enumerate(self.steps) if name == "send_message")
        return self.steps[first : last + 1]


@contextmanager
def traced(tracer: Tracer) -> Iterator[None]:
    """Trace the threads that are started meanwhile."""
    before = threading.getprofile()
    threading.setprofile(tracer)
    try:
        yield
    finally:
        threading.setprofile(before)


def shortest(fast: FastPeer, tracer: Tracer, request: Callable[[], object]) -> list[Step]:
    """Trace a request several times; returns the walk with the fewest calls: the others met maintenance.

    A request that came while the topic's thread had the token does not count.
    """
    walks: list[list[Step]] = []
    until = time.monotonic() + DEADLINE_S
    while len(walks) < ROUNDS:
        assert time.monotonic() < until, "the front end handles requests itself"
        tracer.steps.clear()
        tracer.is_on = True
        request()
        eventually(lambda: any(name == "wait_for_input" for _, name in tracer.steps), "the front end waits")
        tracer.is_on = False
        walk = tracer.walk()
        if all(name != "TopicThread.give" for _, name in walk):
            walks.append(walk)
    return min(walks, key=len)


def files_of(walk: list[Step]) -> list[str]:
    """Return the files of this project on a walk, in the order in which it comes to them."""
    files = (
        path.removeprefix(f"{ROOT}/{folder}/")
        for path, _ in walk
        for package, folder in FOLDERS.items()
        if path.startswith(f"{ROOT}/{folder}/{package}/")
    )
    return list(dict.fromkeys(files))


def described(kind: str) -> list[str]:
    """Return the files that the design names for a walk, in its ten lines, in their order."""
    text = DESIGN.partition(f"<!-- walk of a {kind} -->")[2].partition("<!-- end -->")[0]
    assert len(re.findall(r"^\d+\. ", text, re.MULTILINE)) == 10
    return list(dict.fromkeys(re.findall(r"`(quoth\w+/[\w/]+\.py)`", text)))


@pytest.mark.skipif(
    native.implementation() == "C", reason="a trace sees no compiled functions: QUOTH_NATIVE=0"
)
@pytest.mark.skipif(sys.flags.optimize > 0, reason="calls differ without assertions")
def test_a_publish_and_a_read_go_the_way_that_the_design_describes(
    tmp_path: Path, peers: Peers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No slow disk makes another thread the front end meanwhile."""
    monkeypatch.setattr(stall_guard, "STALL_S", DEADLINE_S)
    tracer = Tracer()
    with traced(tracer):
        broker = Broker(tmp_path / "data", host="127.0.0.1", sync_interval=60.0, worker_timeout=600.0).start()
    try:
        fast = peers.fast(broker)
        newest = fast.publish("t", [b"x"])
        publish = shortest(fast, tracer, lambda: fast.call(Publish("written"), "t", encoded([b"y" * 100])))
        read = shortest(fast, tracer, lambda: fast.call(Fetch(after=newest.last), "t"))
        fast.close()
    finally:
        broker.stop()
    ways = {
        kind: f"{len(walk)} Python calls in {len(files_of(walk))} files"
        for kind, walk in (("publish", publish), ("read", read))
    }
    print(ways)
    assert files_of(publish) == described("publish")
    assert files_of(read) == described("read")
    assert len(publish) <= CALLS_MAX
    assert len(files_of(publish)) <= FILES_MAX
