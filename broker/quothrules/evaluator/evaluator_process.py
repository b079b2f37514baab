"""Evaluates the rules of one set for the records that come by stdin, see `frames`.

    python -m quothrules.evaluator.evaluator_process DEADLINE DESCRIPTOR

It is a process of its own, since nothing but its death ends a regular expression that takes for ever: the
parent kills it. If the parent is gone, too, an alarm of the system does.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import BinaryIO

from quoth.message import Message
from quothrules.evaluation.evaluation import Evaluation
from quothrules.evaluation.functions import load_functions
from quothrules.evaluator import frames
from quothrules.evaluator.current_rule import CurrentRule
from quothrules.evaluator.frames import Frame
from quothrules.file.rule_file import parse_rule_file
from quothwire.errors import QuothError

GRACE_S = 5.0
"""Seconds behind the deadline after which the alarm ends a process whose parent has not."""


def main() -> None:
    """Answer frames until the end of stdin."""
    deadline, rule = float(sys.argv[1]), CurrentRule(int(sys.argv[2]))
    given, answers = _own_pipes()
    with suppress(BrokenPipeError):  # the parent is gone
        _answer(given, answers, deadline, rule)


def _answer(given: BinaryIO, answers: Callable[[bytes], None], deadline: float, rule: CurrentRule) -> None:
    evaluation: Evaluation | None = None
    while (frame := frames.read_frame(given.read)) is not None:
        if frame[0] == frames.RULES:
            evaluation = _begin(frame, answers, rule)
        elif evaluation is not None and frame[0] == frames.FORGET:
            evaluation.forget(frame[1])
        elif evaluation is not None:
            _answer_records(evaluation, frame, answers, deadline)


def _own_pipes() -> tuple[BinaryIO, Callable[[bytes], None]]:
    """Return the pipes, which functions of rules cannot reach: what they print goes to stderr."""
    given = os.fdopen(os.dup(0), "rb")
    answers = os.dup(1)
    os.dup2(2, 1)
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)

    def write(content: bytes) -> None:
        view = memoryview(content)
        while view:
            view = view[os.write(answers, view) :]

    return given, write


def _begin(frame: Frame, answers: Callable[[bytes], None], rule: CurrentRule) -> Evaluation | None:
    """Compile the rules and load their functions."""
    _, text, origin, name = frame
    try:
        rules = parse_rule_file(text, origin, name)
        evaluation = Evaluation(rules, load_functions(rules.functions), rule.begin)
    except QuothError as problem:
        answers(frames.encode_frame(frames.WRONG, problem.code, problem.text, problem.hint))
        return None
    answers(frames.encode_frame(frames.READY))
    return evaluation


def _answer_records(
    evaluation: Evaluation, frame: Frame, answers: Callable[[bytes], None], deadline: float
) -> None:
    """Evaluate records up to the first one that fails, or learn all of them."""
    _, topic, now, learn, rows = frame
    for row in rows:
        message = Message(topic, *row)
        signal.setitimer(signal.ITIMER_REAL, deadline + GRACE_S)
        failed = False
        try:
            if learn:
                evaluation.learn(message, now)
                answer = frames.encode_frame(frames.LEARNED)
            else:
                answer = frames.outcome_frame(evaluation.evaluate(message, now), message)
        except Exception as problem:  # a record must not end the process, which has seen the keys of others
            failed = True
            answer = frames.failure_frame(problem)
        signal.setitimer(signal.ITIMER_REAL, 0)
        answers(answer)
        if failed and not learn:
            return


if __name__ == "__main__":
    main()
