"""The handle of the process that evaluates the rules of a set. It is killed if a record takes too long."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import islice
from typing import NamedTuple

from quoth.message import Message
from quothrules.evaluation.outcome import RuleOutcome
from quothrules.evaluator import frames
from quothrules.evaluator.current_rule import CurrentRule
from quothrules.evaluator.frames import Frame
from quothrules.failure import RuleFailure
from quothrules.rule import RuleSet
from quothwire.closing import Closeable
from quothwire.errors import QuothError, error

START_S = 30.0
"""Seconds in which the process has to begin and to load its functions."""
KEEP_S = 1.0
"""Between two calls of `keep` while nothing comes."""
CHUNK_RECORDS = 256
CHUNK_BYTES = 2**20
"""Bytes of values and keys of one frame, and at least one record."""

History = Callable[[str, int, int], Iterable[Message]]
"""Returns the records of a topic with pointers from the second argument on, and below the third one."""


class Evaluated(NamedTuple):
    """The outcomes of the first of some records. failure: that of the next one, None if all are done."""

    outcomes: list[RuleOutcome]
    failure: RuleFailure | None


class Evaluator(Closeable):
    """Evaluates records in a child process. Any thread may use it; each call waits for the one before it.

    history: reads the records from which the keys of the past are learned; None if there are none. A context
    manager; `close` kills the process.
    """

    def __init__(self, rules: RuleSet, history: History | None = None, origin: str = "rules") -> None:
        self._rules = rules
        self._origin = origin
        self._history = history
        self._lock = threading.Lock()
        self._rule = CurrentRule()
        self._process: subprocess.Popen[bytes] | None = None
        self._received = bytearray()
        self._seen: dict[str, int] = {}
        """The newest record of each topic whose keys the process has seen."""
        self._unlearnable: set[tuple[str, int]] = set()
        """Records that the process did not survive while it learned."""
        self._is_closed = False
        self.killed = 0
        """How often a process was killed for taking too long."""
        self.ended = 0
        """How often a process ended by itself."""

    def start(self) -> None:
        """Start the process. Raises ``bad_setting`` for rules or functions that cannot be used.

        `evaluate` does so, too, if it does not run.
        """
        with self._lock:
            self._start()

    def evaluate(
        self,
        messages: Sequence[Message],
        now: int,
        *,
        is_gap: bool = False,
        keep: Callable[[], None] = lambda: None,
    ) -> Evaluated:
        """Evaluate records of one topic, in the order of their pointers, up to the first failure.

        now: the time as a pointer. is_gap: records behind the last one of the topic may have been evaluated
        elsewhere, before the first of these. keep: called between two records, and every second while a
        record or another call takes its time, for what must not wait for that; what it raises ends the
        evaluation. Raises as `start` does, ``closed`` once it is closed, and what `history` raises.
        """
        outcomes: list[RuleOutcome] = []
        with self._locked(keep):
            try:
                for chunk in _chunks(messages):
                    self._catch_up(chunk[0], now, is_gap and not outcomes, keep)
                    self._send(frames.records_frame(chunk[0].topic, now, False, chunk))
                    for message in chunk:
                        outcomes.append(self._outcome(message, keep))
                        self._seen[message.topic] = message.pointer
                        keep()
            except RuleFailure as failure:
                if self._is_closed:
                    raise _closed() from None
                return Evaluated(outcomes, failure)
            except BaseException:  # its pipe may have answers that are for no one any more
                self._end()
                raise
        return Evaluated(outcomes, None)

    def close(self) -> None:
        """Kill the process, also while another thread waits for it. Does nothing the second time."""
        self._is_closed = True
        process = self._process
        if process is not None:
            process.kill()
        with self._lock:
            self._end()
            self._rule.close()

    @contextmanager
    def _locked(self, keep: Callable[[], None]) -> Iterator[None]:
        """Hold the lock inside the block."""
        while not self._lock.acquire(timeout=KEEP_S):
            keep()
        try:
            yield
        finally:
            self._lock.release()

    # -- keys of the past -----------------------------------------------------------------------------------

    def _catch_up(self, message: Message, now: int, is_gap: bool, keep: Callable[[], None]) -> None:
        """Let the process see the keys before a record, unless it has seen them."""
        self._start(keep)
        topic, pointer = message.topic, message.pointer
        if not self._rules.dedupe_us or self._history is None:
            return
        while is_gap or not self._seen.get(topic, pointer) < pointer:
            begin = max(0, pointer - self._rules.dedupe_us)
            if self._seen.get(topic, pointer) < pointer:
                begin = max(begin, self._seen[topic] + 1)
            else:
                self._send(frames.encode_frame(frames.FORGET, topic))
                self._seen.pop(topic, None)
            known = self._learnable(self._history(topic, begin, pointer))
            if all(self._learn(chunk, now, keep) for chunk in _chunks(known)):
                self._seen[topic] = pointer - 1
                is_gap = False

    def _learnable(self, messages: Iterable[Message]) -> Iterator[Message]:
        return (one for one in messages if (one.topic, one.pointer) not in self._unlearnable)

    def _learn(self, chunk: Sequence[Message], now: int, keep: Callable[[], None]) -> bool:
        """Let the process see records. False if it did not survive one of them, and begins again."""
        self._send(frames.records_frame(chunk[0].topic, now, True, chunk))
        for message in chunk:
            try:
                self._receive(self._rules.deadline, keep)
                keep()
            except RuleFailure:
                self._unlearnable.add((message.topic, message.pointer))
                self._start(keep)
                return False
        return True

    # -- the process ----------------------------------------------------------------------------------------

    def _start(self, keep: Callable[[], None] = lambda: None) -> None:
        if self._is_closed:
            raise _closed()
        if self._process is not None:
            return
        command = [
            sys.executable,
            "-I" if sys.flags.isolated else "-P",
            "-m",
            "quothrules.evaluator.evaluator_process",
        ]
        self._process = subprocess.Popen(
            [*command, str(self._rules.deadline), str(self._rule.fd)],
            pass_fds=(self._rule.fd,),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            process_group=0,  # Ctrl-C reaches the parent alone, which then kills it
        )
        self._received.clear()
        self._seen.clear()
        try:
            self._send(frames.encode_frame(frames.RULES, self._rules.text, self._origin, self._rules.name))
            answer = self._receive(START_S, keep)
        except RuleFailure as failure:
            raise error(
                "unusable_system", f"the process of the rules did not start: {failure.reason}"
            ) from None
        if answer[0] == frames.WRONG:
            self._end()
            raise error(*answer[1:])

    def _outcome(self, message: Message, keep: Callable[[], None]) -> RuleOutcome:
        """Receive the outcome of a record. Raises `RuleFailure`."""
        try:
            answer = self._receive(self._rules.deadline, keep)
        except RuleFailure as failure:  # of the process
            raise RuleFailure(failure.reason, self._rules.rules[self._rule.number].name) from None
        if answer[0] == frames.FAILURE:
            raise RuleFailure(*answer[1:])
        return frames.decode_outcome(answer, message)

    def _send(self, content: bytes) -> None:
        """Send a frame to the process, which reads all of it before it answers."""
        assert self._process is not None
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # it has ended: the next answer is missing
            view = memoryview(content)
            while view:
                view = view[os.write(self._process.stdin.fileno(), view) :]

    def _receive(self, seconds: float, keep: Callable[[], None]) -> Frame:
        """Return the next answer. Without one in time, or if the process has ended, raises `RuleFailure`."""
        assert self._process is not None
        assert self._process.stdout is not None
        stdout = self._process.stdout.fileno()
        poll = select.poll()
        poll.register(stdout, select.POLLIN)
        due = time.monotonic() + seconds
        while (answer := self._taken()) is None:
            left = max(0.0, due - time.monotonic())
            if not poll.poll(min(left, KEEP_S) * 1_000):
                if left > KEEP_S:
                    keep()
                    continue
                self.killed += 1
                self._end()
                raise RuleFailure(f"it took longer than {seconds:g} s and was ended")
            if not (content := os.read(stdout, 2**20)):
                self.ended += 1
                raise RuleFailure(f"the process that evaluates it ended with {self._status()}")
            self._received += content
        return answer

    def _taken(self) -> Frame | None:
        """Take an answer that was received as a whole."""
        if len(self._received) < frames.LENGTH.size:
            return None
        (size,) = frames.LENGTH.unpack_from(self._received)
        end = frames.LENGTH.size + size
        if len(self._received) < end:
            return None
        answer = frames.decode_frame(bytes(self._received[frames.LENGTH.size : end]))
        del self._received[:end]
        return answer

    def _status(self) -> str:
        """Return how a process has ended."""
        assert self._process is not None
        try:
            status = self._process.wait(START_S)
        except subprocess.TimeoutExpired:
            status = 0
        self._end()
        if status >= 0:
            return f"status {status}"
        with suppress(ValueError):
            return signal.Signals(-status).name
        return f"signal {-status}"

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            with process:  # closes the pipes, and waits
                pass


def _closed() -> QuothError:
    return error("closed", "the evaluator was closed")


def _chunks(messages: Iterable[Message]) -> Iterator[list[Message]]:
    """Yield the records in rows that one frame holds."""
    source = iter(messages)
    while chunk := list(islice(source, 1)):
        size = 0
        while len(chunk) < CHUNK_RECORDS and (size := size + _bytes_of(chunk[-1])) < CHUNK_BYTES:
            if not (following := list(islice(source, 1))):
                break
            chunk += following
        yield chunk


def _bytes_of(message: Message) -> int:
    return len(message.value) + len(message.key or b"")
