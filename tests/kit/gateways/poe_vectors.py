"""Plays the cases of `tests/vectors/inherited/poe.json` at a port."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from typing import Any

from kit.gateways.poe import PoePeer

FILE = Path(__file__).parents[2] / "vectors" / "inherited" / "poe.json"
CASES: list[dict[str, Any]] = json.loads(FILE.read_text("utf-8"))["cases"]
_POINTER = re.compile(r"\{(\w)(-1)?\}")
_POINTER_BYTES = 7

Cut = Callable[[bytes], list[bytes]]
"""Divides the bytes of a request."""


class PoePlayer:
    """Plays one case. native: does what a step wants of another client. cut: divides what is sent."""

    def __init__(self, url: str, native: Callable[[str], None], cut: Cut) -> None:
        self._url = url
        self._native = native
        self._cut = cut
        self._pointers: dict[str, int] = {}

    def play(self, case: dict[str, Any], *, pipelined: bool) -> None:
        """Play all steps. pipelined: what needs no pointer of an answer is sent before that answer comes."""
        with ExitStack() as peers:
            peer = peers.enter_context(PoePeer(self._url))
            for steps in self._groups(case["steps"]) if pipelined else ([step] for step in case["steps"]):
                if "native" in steps[0]:
                    self._native(steps[0]["native"])
                peer.send_pieces(self._cut(b"".join(self._sent(step) for step in steps)))
                for step in steps:
                    self._check(peer, step)
                if steps[-1].get("then") == "closed":
                    peer = peers.enter_context(PoePeer(self._url))

    def _groups(self, steps: list[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
        """Divide the steps: a group needs no pointer that its answers bring, and ends with its connection."""
        group: list[dict[str, Any]] = []
        for step in steps:
            needs = {name for name, _ in _POINTER.findall(step.get("send", ""))}
            brings = {name for one in group for name, _ in _POINTER.findall(one.get("reply", ""))}
            if group and (needs & brings or "native" in step or "then" in group[-1]):
                yield group
                group = []
            group.append(step)
        yield group

    def _sent(self, step: dict[str, Any]) -> bytes:
        def pointer(found: re.Match[str]) -> str:
            return (self._pointers[found[1]] - bool(found[2])).to_bytes(_POINTER_BYTES, "big").hex()

        return bytes.fromhex(_POINTER.sub(pointer, step.get("send", "")))

    def _check(self, peer: PoePeer, step: dict[str, Any]) -> None:
        expected = step.get("reply", "")
        size = len(bytes.fromhex(_POINTER.sub("00" * _POINTER_BYTES, expected)))
        received = peer.receive(size)
        assert self._written(received, expected) == expected.replace(" ", ""), step
        if step.get("then") == "closed":
            assert peer.is_closed(), step
        elif step.get("then") == "open":
            assert peer.is_quiet(), step

    def _written(self, received: bytes, expected: str) -> str:
        """Return bytes as hex, with the names of the pointers in them."""
        written = ""
        for part in re.split(r"(\{\w\})", expected.replace(" ", "")):
            size = _POINTER_BYTES if part.startswith("{") else len(part) // 2
            piece, received = received[:size], received[size:]
            if part.startswith("{") and len(piece) == size:
                pointer = int.from_bytes(piece, "big")
                is_same = self._pointers.setdefault(part[1:-1], pointer) == pointer
                written += part if is_same and self._rise() else piece.hex()
            else:
                written += piece.hex()
        return written + received.hex()

    def _rise(self) -> bool:
        """True if the pointers rise with their names."""
        pointers = [self._pointers[name] for name in sorted(self._pointers)]
        return all(before < after for before, after in pairwise(pointers))
