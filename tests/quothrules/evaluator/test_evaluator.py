"""The process that evaluates rules: what it answers, and how it ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kit.deadlines import eventually
from kit.machine.processes import needs_proc, runs
from kit.rules import CATASTROPHE, POINTER, SECOND, UNHURRIED_S, record, rules_of
from quoth import Message
from quothrules.evaluation.outcome import RoutedRecord, RuleOutcome, Step
from quothrules.evaluator import evaluator as evaluator_module
from quothrules.evaluator import frames
from quothrules.evaluator.evaluator import Evaluator
from quothrules.failure import RuleFailure
from quothwire.errors import Disconnected, RequestError

BRIEF = 'deadline = "2s"'
"""Of rules that the search ends. All others have time enough for a busy machine."""
RULES = """
[[rule]]
name = "fails"
to = "b-{headers[none]}"
match.prefix = "fail"
[[rule]]
name = "catastrophe"
to = "b"
match.regex = "^(a+)+$"
[[rule]]
name = "rest"
to = "c"
"""


def numbered(count: int, value: bytes = b"value") -> list[Message]:
    return [record(value, POINTER + number, b"%d" % number) for number in range(count)]


def reason(failure: RuleFailure | None) -> str:
    assert failure is not None
    return str(failure)


def test_outcomes_come_in_order() -> None:
    """However many frames the records take."""
    messages = [
        *numbered(600),
        *(one._replace(pointer=one.pointer + 600) for one in numbered(3, bytes(600_000))),
    ]
    with Evaluator(rules_of(RULES)) as evaluator:
        outcomes, failure = evaluator.evaluate(messages, POINTER)
        assert failure is None
        assert [one.outputs[0].key for one in outcomes] == [one.key for one in messages]
        assert [one.outputs[0].value for one in outcomes] == [one.value for one in messages]
        assert evaluator.evaluate([], POINTER) == ([], None)


def test_frames_keep_outcomes() -> None:
    message = record(b"value")
    outcome = RuleOutcome(
        (RoutedRecord("a", b"value", None, {"h": b"\xff"}), RoutedRecord("b", b"other", b"", {}, 5)),
        (Step("one", "routed"), Step("two", "routed")),
        True,
    )
    encoded = frames.outcome_frame(outcome, message)
    assert encoded.count(b"value") == 0, "a value that is the record's is not sent back"
    assert frames.decode_outcome(frames.decode_frame(encoded[4:]), message) == outcome


def test_frames_keep_failures_that_are_no_text() -> None:
    for problem in (ValueError("\ud800"), RuleFailure("ValueError: \ud800", "one")):
        frame = frames.decode_frame(frames.failure_frame(problem)[4:])
        assert frame == [frames.FAILURE, r"ValueError: \ud800", getattr(problem, "rule", "")]


def test_a_failure_ends_the_row() -> None:
    """The records behind it were not evaluated: they wait for it."""
    with Evaluator(rules_of(RULES)) as evaluator:
        row = [*numbered(2), *numbered(1, b"fail"), *numbered(1)]
        outcomes, failure = evaluator.evaluate(row, POINTER)
        assert len(outcomes) == 2
        assert reason(failure) == "rule 'fails': 'b-{headers[none]}': the record has no headers[none]"
        outcomes, failure = evaluator.evaluate(numbered(3), POINTER)
        assert (len(outcomes), failure) == (3, None)
        assert (evaluator.killed, evaluator.ended) == (0, 0)


@needs_proc
@pytest.mark.usefixtures("unhurried")
def test_a_catastrophic_expression_is_ended_by_the_deadline() -> None:
    """The process is killed and started again; the records before it have their outcomes."""
    with Evaluator(rules_of(BRIEF + RULES)) as evaluator:
        evaluator.start()
        assert evaluator._process is not None
        first = evaluator._process.pid
        began = time.monotonic()
        outcomes, failure = evaluator.evaluate([*numbered(2), record(CATASTROPHE), *numbered(1)], POINTER)
        assert time.monotonic() - began < 30
        assert len(outcomes) == 2
        assert reason(failure) == "rule 'catastrophe': it took longer than 2 s and was ended"
        assert evaluator.killed == 1
        assert not runs(first)
        outcomes, failure = evaluator.evaluate(numbered(1), POINTER)
        assert (len(outcomes), failure) == (1, None)
        second = evaluator._process.pid
    assert not runs(second)


FUNCTIONS = """
import os, sys
def exits(record):
    if record.value == b"exit":
        os._exit(3)
    if record.value == b"kill":
        os.kill(os.getpid(), 9)
    print("printed by a function", sys.stdin.read())
    return [("b", record)]
def broken(record):
    raise SystemExit(1)
"""


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Install a package with functions of rules."""
    (tmp_path / "shop_rules.py").write_text(FUNCTIONS)
    metadata = tmp_path / "shop_rules-1.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: shop-rules\nVersion: 1\n")
    (metadata / "entry_points.txt").write_text(
        "[quoth.rules]\nexits = shop_rules:exits\nbroken = shop_rules:broken\nmissing = shop_rules:missing\n"
    )
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}")


@pytest.mark.usefixtures("installed")
def test_a_function_that_ends_the_process(capfd: pytest.CaptureFixture[str]) -> None:
    """The output of functions is no answer, and they cannot read the records of others."""
    with Evaluator(rules_of('[[rule]]\nname = "call"\ncall = "exits"')) as evaluator:
        for value, ending in ((b"exit", "status 3"), (b"kill", "SIGKILL")):
            outcomes, failure = evaluator.evaluate([record(), record(value)], POINTER)
            assert len(outcomes) == 1
            assert reason(failure) == f"rule 'call': the process that evaluates it ended with {ending}"
        assert evaluator.ended == 2
    assert "printed by a function" in capfd.readouterr().err


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(
    ("name", "problem"),
    [("exit", "did you mean exits?"), ("other", "entry point quoth.rules"), ("missing", "cannot be loaded")],
)
def test_a_function_that_cannot_be_called(name: str, problem: str) -> None:
    with Evaluator(rules_of(f'[[rule]]\ncall = "{name}"')) as evaluator:
        with pytest.raises(RequestError, match="bad_setting") as raised:
            evaluator.start()
        assert problem in str(raised.value)


# -- keys of the past ---------------------------------------------------------------------------------------

ONCE = """
[[rule]]
name = "catastrophe"
to = "b"
match.regex = "^(a+)+$"
[[rule]]
name = "once"
to = "b"
dedupe = "10s"
"""


class Past:
    """The records of a topic, read as a client reads them."""

    def __init__(self, messages: Iterable[Message]) -> None:
        self.messages = list(messages)
        self.reads: list[tuple[int, int]] = []

    def __call__(self, topic: str, begin: int, end: int) -> Iterator[Message]:
        self.reads.append((begin, end))
        return (one for one in self.messages if one.topic == topic and begin <= one.pointer < end)


def at(second: float, key: bytes = b"k", value: bytes = b"x", topic: str = "orders") -> Message:
    return record(value, POINTER + round(second * SECOND), key, topic=topic)


def fates(evaluator: Evaluator, *messages: Message) -> list[str]:
    outcomes, failure = evaluator.evaluate(messages, POINTER)
    return [one.steps[0].fate for one in outcomes] + ([failure.reason[:7]] if failure else [])


def test_a_process_learns_the_keys_of_the_past() -> None:
    """Of the span before its first record of a topic, once for each topic."""
    past = Past([at(0), at(1, b"a"), at(5, b"b"), at(12, topic="other")])
    with Evaluator(rules_of(ONCE), past) as evaluator:
        assert fates(evaluator, at(11, b"a"), at(12), at(13, b"b")) == ["duplicate", "routed", "duplicate"]
        assert fates(evaluator, at(14, b"c"), at(15, b"c")) == ["routed", "duplicate"]
        assert fates(evaluator, at(16, topic="other")) == ["duplicate"]
    assert past.reads == [(at(1).pointer, at(11).pointer), (at(6).pointer, at(16).pointer)]


@pytest.mark.usefixtures("unhurried")
def test_a_new_process_learns_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also what the one before it had evaluated, and not the record that was its end."""
    monkeypatch.setattr(evaluator_module, "CHUNK_RECORDS", 1)  # so that each record has a deadline of its own
    past = Past([at(0), at(1, b"a", CATASTROPHE), at(2, b"c")])
    with Evaluator(rules_of(BRIEF + ONCE), past) as evaluator:
        assert fates(evaluator, at(3, b"c")) == ["duplicate"]
        assert evaluator.killed == 1, "by the second record of the past"
        past.messages.append(at(3, b"d"))
        assert fates(evaluator, at(4, b"e", CATASTROPHE)) == ["it took"]
        assert fates(evaluator, at(4, b"d")) == ["duplicate"]
        assert evaluator.killed == 2, "the record of the past was left out"


def test_a_process_goes_back_with_its_records() -> None:
    past = Past([at(0), at(8, b"a"), at(20)])
    with Evaluator(rules_of(ONCE), past) as evaluator:
        assert fates(evaluator, at(21)) == ["duplicate"]
        assert fates(evaluator, at(9), at(10, b"a"), at(11, b"b")) == ["duplicate", "duplicate", "routed"]
        assert fates(evaluator, at(11, b"b")) == ["routed"], "it is read again, and no duplicate of itself"


def test_records_in_a_gap_are_learned() -> None:
    """Without those before it once more."""
    past = Past([at(0, b"a"), at(2, b"c"), at(3, b"d")])
    with Evaluator(rules_of(ONCE), past) as evaluator:
        assert fates(evaluator, at(1, b"b")) == ["routed"]
        outcomes, _ = evaluator.evaluate([at(4, b"c"), at(5, b"d"), at(6, b"b")], POINTER, is_gap=True)
        assert [one.steps[0].fate for one in outcomes] == ["duplicate"] * 3
        assert evaluator.evaluate([at(7)], POINTER, is_gap=True).failure is None
    assert past.reads[1:] == [(at(1).pointer + 1, at(4).pointer), (at(6).pointer + 1, at(7).pointer)]


def test_time_is_given_to_others_between_two_records(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluator_module, "KEEP_S", UNHURRIED_S)
    kept: list[int] = []
    with Evaluator(rules_of(ONCE), Past(at(second) for second in range(5))) as evaluator:
        evaluator.start()
        evaluator.evaluate([at(5), at(6)], POINTER, keep=lambda: kept.append(1))
    assert len(kept) == 7


class Stop(Exception):
    """Ends an evaluation."""


def stop() -> None:
    raise Stop


def test_time_is_given_to_others_while_a_record_takes_long() -> None:
    with Evaluator(rules_of(RULES)) as evaluator:
        evaluator.start()
        with pytest.raises(Stop):
            evaluator.evaluate([record(CATASTROPHE)], POINTER, keep=stop)
        assert evaluator.evaluate(numbered(1), POINTER).failure is None
        assert evaluator.killed == 0


def test_time_is_given_to_others_while_another_call_takes_long() -> None:
    kept = threading.Event()

    def stop_once_kept() -> None:
        if kept.is_set():
            raise Stop

    with Evaluator(rules_of(RULES)) as evaluator, ThreadPoolExecutor() as threads:
        evaluator.start()
        first = threads.submit(evaluator.evaluate, [record(CATASTROPHE)], POINTER, keep=stop_once_kept)
        eventually(evaluator._lock.locked, "the first call has begun")
        assert evaluator.evaluate(numbered(1), POINTER, keep=kept.set).failure is None
        assert isinstance(first.exception(), Stop)


# -- the end ------------------------------------------------------------------------------------------------


@needs_proc
@pytest.mark.parametrize("is_busy", [False, True])
def test_the_process_ends_with_its_parent(is_busy: bool) -> None:
    """At once if it waits; by its alarm in the middle of an expression."""
    code = f"""
import sys
from dataclasses import replace
from kit.rules import POINTER, record, rules_of
from quothrules.evaluator.evaluator import Evaluator
from quothrules.evaluator.evaluator_process import GRACE_S
evaluator = Evaluator(replace(rules_of({RULES!r}), deadline=0.2 - GRACE_S))
evaluator.start()

def wait(*_):
    print(evaluator._process.pid, flush=True)
    sys.stdin.read()

if {is_busy}:
    evaluator._receive = wait
    evaluator.evaluate([record({CATASTROPHE!r})], POINTER)
wait()
"""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
    ) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        assert is_busy or runs(child), "its alarm may have come"
        os.kill(parent.pid, signal.SIGKILL)
    eventually(lambda: not runs(child), "the process of the rules has ended")


def test_a_closed_evaluator_has_no_process() -> None:
    evaluator = Evaluator(rules_of(RULES))
    evaluator.start()
    evaluator.close()
    evaluator.close()
    with pytest.raises(Disconnected, match="closed"):
        evaluator.evaluate(numbered(1), POINTER)
