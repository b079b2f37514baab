"""Values become dataclasses at their first use, in any thread."""

from __future__ import annotations

import dataclasses
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from quothwire.protocol import value
from quothwire.protocol.value import Value


def new_class() -> Any:
    class Pair(Value):
        left: int
        right: str = "r"
        more: list[int] = dataclasses.field(default_factory=list)

    return Pair


def with_a_pause(action: Callable[[], None], at_line: int, meanwhile: Callable[[], None]) -> bool:
    """Run the action in a thread that stops before the given executed line of `value.py`, until `meanwhile`
    has run in another thread. False if the action has fewer lines."""
    count = 0

    def trace(frame: FrameType, event: str, _argument: object) -> Any:
        nonlocal count
        if frame.f_code.co_filename != value.__file__:
            return None
        if event == "line":
            count += 1
            if count == at_line:
                other = threading.Thread(target=meanwhile)
                other.start()
                other.join()
        return trace

    def traced() -> None:
        sys.settrace(trace)
        try:
            action()
        finally:
            sys.settrace(None)

    thread = threading.Thread(target=traced)
    thread.start()
    thread.join()
    return count >= at_line


def test_two_threads_with_the_first_use_of_a_class_both_get_a_dataclass() -> None:
    """One thread is interrupted before each line, and the other one runs from beginning to end."""
    for at_line in range(1, 1_000):
        pair = new_class()
        results: list[object] = []

        def use(pair: Any = pair, results: list[object] = results) -> None:
            made = pair(1, more=[2])
            results.append((made.left, made.right, made.more, made == pair(1, "r", [2]), repr(made)))

        if not with_a_pause(use, at_line, use):
            assert at_line > 10
            return
        one, other = results
        assert one == other
    raise AssertionError("the class is never complete")


def test_an_interrupt_during_the_first_use_of_a_class_is_raised_as_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The next use makes the class a dataclass."""

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    pair = new_class()
    with monkeypatch.context() as patch:
        patch.setattr(dataclasses.Field, "__set_name__", interrupted)
        with pytest.raises(KeyboardInterrupt):
            pair(1)
    assert pair(1).left == 1


def test_values_are_equal_by_class_and_fields() -> None:
    one, other = new_class(), new_class()
    assert one(1) == one(1, "r")
    assert one(1) != one(2)
    assert one(1) != other(1)
    assert [field.name for field in dataclasses.fields(one)] == ["left", "right", "more"]
    with pytest.raises(TypeError, match="left"):
        one()
