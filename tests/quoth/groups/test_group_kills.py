"""Members, the broker and the process of rules are killed at any instant; each promise holds for each record.

QUOTH_LONG=1 kills 200 times; QUOTH_SEED repeats a series that failed.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, suppress
from pathlib import Path

import pytest

import quoth
from kit.broker.brokers import BrokerProcess, StartBroker
from kit.client.group_members import TIMEOUT_S, GroupAccount
from kit.deadlines import eventually, pause
from kit.machine.forkserver import start
from kit.machine.processes import children, needs_proc, python_of
from kit.memory_groups import MemoryGroup, memory_group, needs_memory_group
from kit.rules import add_rules
from kit.scale import times
from quoth import Client, Message

KILLS = times(20, 200)
POISON = "7"
"""Records whose number ends with it are given back by the members of a group."""
MEMBERS = {"work": 3, "letters": 2, "once": 2}
SETTINGS = {
    "work": {"max_attempts": 0},
    "letters": {"max_attempts": 6},
    "once": {"mode": "at_most_once"},
}
COPY = 'topics = ["t"]\n[[rule]]\nto = "copied"'
TESTS = Path(__file__).parents[2]


class Team:
    """The members of all groups, each in a process, and the broker. A killed one is started again.

    memory: the group of the broker, in which it is killed for want of memory.
    """

    def __init__(
        self, broker: BrokerProcess, folder: Path, chance: random.Random, memory: MemoryGroup | None
    ) -> None:
        self.broker = broker
        self._memory = memory
        self._folder = folder
        self._chance = chance
        self._members = {
            (group, row): self._start(group) for group in MEMBERS for row in range(MEMBERS[group])
        }

    def kill_one(self) -> None:
        """Kill the broker, a member, or the process of the rules. The broker starts the last one again."""
        if (draw := self._chance.random()) < 0.4:
            if self._memory is not None:
                self._memory.exhaust(self.broker)
            else:
                self.broker.kill()
            self.broker.restart()
            return
        if draw < 0.5:
            for process in children(self.broker.pid):
                with suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
            return
        key = self._chance.choice([*self._members])
        self._end(self._members[key])
        self._members[key] = self._start(key[0])

    def close(self) -> None:
        for member in self._members.values():
            self._end(member)

    def account(self, group: str) -> GroupAccount:
        return GroupAccount.read(self._folder / group)

    def _start(self, group: str) -> subprocess.Popen[bytes]:
        poison = POISON if group == "letters" else "none"
        arguments = self.broker.url, "t", group, str(self._folder / group), poison
        path = os.pathsep.join(filter(None, (str(TESTS), os.environ.get("PYTHONPATH"))))
        command = [*python_of("kit.client.group_members"), *arguments]
        return start(command, env={**os.environ, "PYTHONPATH": path}, stdout=subprocess.DEVNULL)

    def _end(self, member: subprocess.Popen[bytes]) -> None:
        member.send_signal(signal.SIGKILL)
        assert member.wait() == -signal.SIGKILL, "it has ended by itself"


class Stream:
    """Publishes numbered records from a thread until `stop`. numbers: by their pointers."""

    def __init__(self, client: Client, chance: random.Random) -> None:
        self._client = client
        self._chance = random.Random(chance.random())
        self._is_over = threading.Event()
        self._pool = ThreadPoolExecutor(1)
        self._sent = self._pool.submit(self._run)

    def _run(self) -> int:
        number = 0
        with self._client.producer("t") as producer:
            while not self._is_over.is_set():
                for _ in range(self._chance.choice((1, 1, 3, 20))):
                    producer.send(b"%d" % number)
                    number += 1
                producer.flush()
                self._is_over.wait(self._chance.random() / 50)
        return number

    def stop(self) -> int:
        """Stop; returns how many records were published, all of them acknowledged."""
        self._is_over.set()
        with self._pool:
            return self._sent.result(TIMEOUT_S)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "accounts").mkdir()
    return tmp_path / "accounts"


@pytest.fixture(params=[False, pytest.param(True, marks=needs_memory_group)], ids=["", "of-memory"])
def memory(request: pytest.FixtureRequest) -> Iterator[MemoryGroup | None]:
    """A memory cgroup for the broker, or none."""
    with memory_group() if request.param else nullcontext() as group:
        yield group


@pytest.fixture
def client(memory: MemoryGroup | None, start_broker: StartBroker) -> Iterator[tuple[BrokerProcess, Client]]:
    broker = start_broker(scrub_interval=0, prefix=memory.prefix if memory is not None else ())
    with quoth.connect(broker.url, timeout=TIMEOUT_S) as client:
        yield broker, client


@needs_proc
@pytest.mark.timeout(times(300, 1_800))
def test_every_promise_of_groups_holds_through_kills_of_members_and_broker(
    client: tuple[BrokerProcess, Client], folder: Path, seed: int, memory: MemoryGroup | None
) -> None:
    broker, publisher = client
    chance = random.Random(seed)
    publisher.create_topic("t", size_limit="100kB")
    publisher.create_topic("copied")
    groups = {
        name: publisher.group("t", name, lease=2.0, backoff=(0.0,), **settings)  # type: ignore[arg-type]
        for name, settings in SETTINGS.items()
    }
    for group in groups.values():
        group.info()
    add_rules(publisher, "copy", COPY, begin=0)
    team = Team(broker, folder, chance, memory)
    stream = Stream(publisher, chance)
    try:
        for _ in range(KILLS):
            pause(chance.random() * 0.25)
            team.kill_one()
        published = stream.stop()
        for group in groups.values():
            eventually(lambda group=group: not group.lag().records, f"{group.name} is done", 90)  # type: ignore[misc]
        eventually(lambda: publisher.count("copied").records >= published, "the rule has routed all", 120)
    finally:
        team.close()
    _check(team, publisher, published)


def _check(team: Team, client: Client, published: int) -> None:
    """Check every promise, record by record."""
    records = {message.pointer: message.value.decode() for message in _all(client, "t")}
    assert [*records.values()] == [str(number) for number in range(published)], "the topic itself"
    poison = {pointer for pointer, value in records.items() if value.endswith(POISON)}

    work, letters, once = map(team.account, ("work", "letters", "once"))
    for account in (work, letters, once):
        assert all(records[at] == one.value for at, all_ in account.got.items() for one in all_)
    assert {*work.got} == {*records}, "at least once"
    work.check_acks()
    work.check_attempts()
    assert {*work.acked} <= {*records}
    assert all(len(handed_out) == 1 for handed_out in once.got.values()), "at most once"
    letters.check_acks()
    letters.check_attempts()
    assert {*letters.got} == {*records}
    assert not {*letters.acked} & poison
    assert all(one.attempts <= 6 for pointer in poison for one in letters.got[pointer])
    dead = [int(letter.headers["quoth-pointer"]) for letter in _all(client, "t.letters.dead")]
    assert len(dead) == len({*dead}), "each dead letter is stored once"
    assert {*dead} == poison, "what no member could process, and nothing else"
    copied = [message.value.decode() for message in _all(client, "copied")]
    assert copied == [*records.values()], "a rule routes each record once, in order"
    print(f"{published} records, {sum(map(len, work.got.values()))} hand-outs for work, {len(dead)} dead")


def _all(client: Client, topic: str) -> Iterator[Message]:
    for batch in client.batches(topic):
        yield from batch
