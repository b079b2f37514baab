"""The frames between the rules process and the child that evaluates: a length, 4 bytes, and msgpack.

The parent sends rules once, then records; the child answers the rules, and each record in turn:

    [RULES, text, origin, name]                              [READY] or [WRONG, code, text, hint]
    [FORGET, topic]                                          nothing
    [RECORDS, topic, now, learn, [[pointer, value, key, headers], ...]]
        each record:    [OUTCOME, outputs, steps, refused] or [LEARNED] or [FAILURE, reason, rule]

After a failure the child leaves out the other records, unless it only learns them. A value of an output
that is that of the record is nil.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any

import msgpack

from quoth.message import Message
from quothrules.evaluation.outcome import RoutedRecord, RuleOutcome, Step
from quothrules.failure import RuleFailure

RULES, FORGET, RECORDS, READY, WRONG, OUTCOME, FAILURE, LEARNED = range(8)
LENGTH = struct.Struct("<I")
Frame = list[Any]


def encode_frame(*parts: Any) -> bytes:
    """Encode a frame with its length."""
    content: bytes = msgpack.packb(parts)
    return LENGTH.pack(len(content)) + content


def decode_frame(content: bytes | bytearray | memoryview) -> Frame:
    """Decode a frame without its length."""
    frame: Frame = msgpack.unpackb(content, strict_map_key=False)
    return frame


def read_frame(read: Callable[[int], bytes]) -> Frame | None:
    """Read a whole frame; None at the end. read: returns exactly so many bytes, or fewer at the end."""
    length = read(LENGTH.size)
    if len(length) < LENGTH.size:
        return None
    (size,) = LENGTH.unpack(length)
    content = read(size)
    return decode_frame(content) if len(content) == size else None


def records_frame(topic: str, now: int, learn: bool, messages: Sequence[Message]) -> bytes:
    """Encode records of a topic."""
    rows = [(one.pointer, one.value, one.key, dict(one.headers)) for one in messages]
    return encode_frame(RECORDS, topic, now, learn, rows)


def outcome_frame(outcome: RuleOutcome, message: Message) -> bytes:
    """Encode the outcome of a record."""
    outputs = [
        (
            one.topic,
            None if one.value == message.value else one.value,
            one.key,
            dict(one.headers),
            one.delay_us,
        )
        for one in outcome.outputs
    ]
    return encode_frame(OUTCOME, outputs, outcome.steps, outcome.refused)


def failure_frame(problem: Exception) -> bytes:
    """Encode the failure of a record."""
    failure = (
        problem if isinstance(problem, RuleFailure) else RuleFailure(f"{type(problem).__name__}: {problem}")
    )
    reason = failure.reason.encode("utf-8", "backslashreplace")  # it may quote what is no text
    return encode_frame(FAILURE, reason.decode(), failure.rule)


def decode_outcome(frame: Frame, message: Message) -> RuleOutcome:
    """Decode the outcome of a record."""
    _, outputs, steps, refused = frame
    return RuleOutcome(
        tuple(
            RoutedRecord(topic, message.value if value is None else value, key, headers, delay_us)
            for topic, value, key, headers, delay_us in outputs
        ),
        tuple(Step(*step) for step in steps),
        refused,
    )
