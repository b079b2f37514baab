"""A member of a group as a process that may be killed, and the account of what members got.

    python -m kit.client.group_members URL TOPIC GROUP FILE POISON

It appends a line to the file for each record that it gets, and another one when its ack is answered. So the
file, into which all members write, has what happened in the order in which it happened.
"""

from __future__ import annotations

import os
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import quoth
from quoth import Conflict, Disconnected, Unavailable

FETCH_RECORDS = 5
FETCH_S = 0.5
TIMEOUT_S = 30.0


def main() -> None:
    """Take part in a group until the process is killed. Gives records back whose value ends with POISON."""
    url, topic, name, path, poison = sys.argv[1:]
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def say(*words: object) -> None:
        os.write(file, " ".join(map(str, words)).encode() + b"\n")

    with quoth.connect(url, timeout=TIMEOUT_S) as client, client.group(topic, name) as group:
        while True:
            asked = time.monotonic_ns()
            try:
                for message in group.fetch(FETCH_RECORDS, timeout=FETCH_S):
                    say("got", message.pointer, message.value.decode(), message.attempts, asked)
                    if message.value.endswith(poison.encode()):
                        message.nack()
                    else:
                        message.ack()
                        say("acked", message.pointer, time.monotonic_ns())
            except (Conflict, Disconnected, Unavailable) as problem:
                say("failed", problem.code)


class HandedOut(NamedTuple):
    """A record that a member got. asked: when it began to ask for records."""

    value: str
    attempts: int
    asked: int


@dataclass
class GroupAccount:
    """The records that the members of one group got, and when their acks were answered, by pointers."""

    got: dict[int, list[HandedOut]] = field(default_factory=lambda: defaultdict(list))
    acked: dict[int, int] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path) -> GroupAccount:
        account = cls()
        for word, *fields in _lines(path):
            if word == "got":
                account.got[int(fields[0])].append(HandedOut(fields[1], int(fields[2]), int(fields[3])))
            elif word == "acked":
                account.acked.setdefault(int(fields[0]), int(fields[1]))
        return account

    def check_acks(self) -> None:
        """No record is handed out to a member that asked for it after its ack was answered."""
        for pointer, answered in self.acked.items():
            late = [one for one in self.got[pointer] if one.asked > answered]
            assert not late, f"{pointer} came back after its ack: {late}"

    def check_attempts(self) -> None:
        """From the second hand-out on, no number of attempts is given twice, whatever died."""
        for pointer, handed_out in self.got.items():
            counted = [one.attempts for one in handed_out if one.attempts > 1]
            assert len(counted) == len({*counted}), f"{pointer}: attempts {counted}"


def _lines(path: Path) -> Iterator[list[str]]:
    """Yield the words of each line; a member that was killed has written whole lines only."""
    for line in path.read_text().splitlines():
        yield line.split(" ")


if __name__ == "__main__":
    main()
