"""Interrupted at any step, printing stops with the cursor exactly behind the records that were written."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from types import FrameType
from typing import Any, TextIO

import pytest

from kit.machine.processes import drained
from quoth import Cursor, Message
from quothcli.printing import record_printer
from quothcli.printing.record_printer import WRITE_BYTES, RecordPrinter

RECORDS = [Message("ab"[number % 2], number + 1, b"%d" % number, None, {}) for number in range(9)]
SIZES = dict.fromkeys((2, 3, 5), WRITE_BYTES // 2) | {7: 2 * WRITE_BYTES + 1}


def line_of(record: Message) -> bytes:
    return record.value + b"x" * SIZES.get(int(record.value), 0) + b"\n"


class Interruption:
    """Raises KeyboardInterrupt once, at a step of the module that prints; `happened` says whether it did."""

    def __init__(self, step: int) -> None:
        self._left = step
        self.happened = False

    def __call__(self, frame: FrameType, event: str, _argument: Any) -> Interruption | None:
        if frame.f_code.co_filename != record_printer.__file__:
            return None
        if event == "line" and not self.happened:
            if not self._left:
                self.happened = True
                raise KeyboardInterrupt
            self._left -= 1
        return self


@pytest.fixture
def pipe() -> Iterator[tuple[int, TextIO]]:
    """Return both ends of a pipe."""
    reading, writing = os.pipe()
    with os.fdopen(reading), os.fdopen(writing, "w") as end:
        yield reading, end


def test_interrupted_at_any_step_the_cursor_is_exactly_behind_what_is_written(
    pipe: tuple[int, TextIO], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reading, end = pipe
    monkeypatch.setattr(sys, "stdout", end)
    before = sys.gettrace()
    steps = 0
    for step in count():
        with Cursor(tmp_path / f"{step}.cursor") as cursor:
            with RecordPrinter(line_of, cursor) as printer:
                interruption = Interruption(step)
                sys.settrace(interruption)
                try:
                    printer.take(RECORDS)
                except KeyboardInterrupt:
                    steps += 1
                finally:
                    sys.settrace(before)
            if not interruption.happened:
                break
            written = drained(reading).splitlines(keepends=True)
            whole = [line for line in written if line.endswith(b"\n")]
            assert printer.written == len(whole), step
            done = RECORDS[: len(whole)]
            for topic in "ab":
                newest = max((record.pointer for record in done if record.topic == topic), default=None)
                assert cursor.after(topic) == newest, step
    assert steps > 100
