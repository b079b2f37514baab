"""A broker process with failing calls to the file system, and with limits of the process.

A step of a topic is repeated with another of its calls failing each time. Afterwards no refused record is
stored, no acknowledged one is missing, and other topics have worked meanwhile.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from itertools import takewhile
from pathlib import Path

import pytest

from kit.broker.brokers import READY, BrokerProcess, StartBroker
from kit.broker.peers import Peers, replied
from kit.broker.scenarios import AWAKE, PATIENT, SLEEPY, STEPS, Stage, settings_for
from kit.deadlines import eventually
from kit.machine.limits import descriptors_left, file_bytes, needs_prlimit
from kit.machine.tracing import CALLS, CHANGES, Call, Fault, Tracer, calls_in, fault_at, needs_strace, traced
from kit.scale import times

NEED_ROOM = tuple(name for name in CHANGES if name not in ("ftruncate", "unlink", "unlinkat"))
FAILURES = {"EIO": CALLS, "ENOSPC": NEED_ROOM, "EMFILE": ("openat",)}
"""The calls that fail with each error."""
CODES = {
    "EIO": {"storage_failed"},
    "ENOSPC": {"disk_low", "storage_failed"},
    "EMFILE": {"busy", "storage_failed"},
}
"""The codes that a client may get for each error."""


OF_MANY_FILES = "publish of a large transaction"
"""A step that may be decided before a call fails."""
PUBLISHING = ("publish of a transaction", OF_MANY_FILES)


class Plot:
    """The calls of a step, and the expected effects of their failures."""

    def __init__(self, step: str, calls: Sequence[Call]) -> None:
        self.step = step
        self.calls = calls

    def faults(self) -> list[tuple[Call, str]]:
        """Return every call with each of its possible errors."""
        return [
            (call, problem)
            for call in self.calls
            for problem, names in FAILURES.items()
            if call.name in names and fault_at(self.calls, call, problem)
        ]

    def served_by(self, call: Call) -> Call:
        """Return the change that a call serves: a directory is synced for the change of a name in it."""
        at = self.calls.index(call)
        around: Iterable[Call]
        if call.name == "fsync":
            around = reversed(self.calls[:at])
        elif "O_DIRECTORY" in call.text:
            around = takewhile(lambda one: (one.name, one.path) != ("fsync", call.path), self.calls[at:])
        else:
            return call
        changes = [one for one in around if one.name in ("rename", "unlink")]
        return next((one for one in changes if Path(one.path).parent == Path(call.path)), call)

    def is_dispensable(self, call: Call) -> bool:
        """True for a call that serves an index, a footer, a process id or the removal of files."""
        served = self.served_by(call)
        clears = "/.gone~" in call.path and call.name != "rename"
        clears |= call.name == "pwrite64" and call.path.endswith("/lock")
        tidies = call.name == "unlink" and call.path.endswith(".staged") and self.step in PUBLISHING
        seals = "QUOTHEND" in call.text
        seals |= self.step == OF_MANY_FILES and call.name == "openat" and call.path.endswith(".seg")
        indexes = ".idx" in served.path and served.name != "unlink"
        return clears or tidies or seals or indexes

    def only_reads(self, call: Call) -> bool:
        """True if the call makes nothing durable."""
        reads = "O_RDONLY|" in call.text and "O_NOFOLLOW" in call.text
        return call.name == "pread64" or (call.name == "openat" and reads)

    def writes_log(self, call: Call) -> bool:
        """True if the call changes a segment or its name in an active topic."""
        served = self.served_by(call)
        return self.step in AWAKE and ".seg" in served.path and served.name != "unlink"

    def judge(self, call: Call, problem: str, code: str, following: str, *, exists: bool) -> None:
        """Check the codes that the client got.

        following: the code of the next publish. exists: False if that publish has created the topic.
        """
        may_refuse = {"", *CODES[problem]}
        if call.path.endswith(".staged"):
            may_refuse.add("damaged")  # it alone cannot be read
        passes = problem != "EIO" and call.name not in ("fsync", "fdatasync") and self.step != OF_MANY_FILES
        assert not (passes and code == "storage_failed"), "it passes by itself, and has to say so"
        if self.is_dispensable(call):
            assert (code, following) == ("", "")
        elif self.only_reads(call):
            assert code in may_refuse
            assert not following or self.step in SLEEPY
        elif not exists:
            assert (code in may_refuse, following) == (True, "")
        elif code == "storage_failed":
            assert not self.writes_log(call) or following == "storage_failed", "until the next start"
        elif code:
            assert (code in may_refuse, following) == (True, ""), "it passes by itself"
        else:
            assert following == "storage_failed", "swallowed"


class FaultyStage(Stage):
    """A stage with single calls that fail."""

    def suffer(self, plot: Plot, call: Call, problem: str) -> None:
        """Take a step while one of its calls fails, and check the effects."""
        fault = fault_at(plot.calls, call, f"error={problem}")
        for _ in range(5):
            life = self.prepare(STEPS[plot.step])
            with Tracer(self.broker.pid, self.output, fault) as tracer:
                code = STEPS[plot.step].act(life)
            struck = [(one.name, Path(one.path).suffix) for one in tracer.calls if one.struck]
            if struck == [(call.name, Path(call.path).suffix)]:
                break  # else its thread has opened a file of the system before, which some do when they start
        else:
            raise AssertionError(f"{call} was not struck, but {struck}")
        if call.name not in ("fdatasync", "fsync") and plot.step != OF_MANY_FILES:
            life.account.was_not_written()
        for durability in ("written", "synced"):
            assert not self.other.publish(durability=durability)
        life.check()
        exists = life.exists()
        if not exists:
            assert [*self.broker.topics_directory.glob(f"{life.topic}~*")] == []
        following = life.publish()
        print(f"{plot.step}: {fault} at {call.path}: {code or 'ok'}, then {following or 'ok'}")
        plot.judge(call, problem, code, following, exists=exists)


@needs_strace
@pytest.mark.parametrize("step", STEPS)
def test_each_failing_call_is_reported_or_dispensable(
    start_broker: StartBroker, peers: Peers, tmp_path: Path, rng: random.Random, step: str
) -> None:
    broker = start_broker(**settings_for(step))
    stage = FaultyStage(broker, peers, tmp_path / "trace")
    plot = Plot(step, stage.rehearse(STEPS[step]))
    faults = plot.faults()
    for call, problem in rng.sample(faults, min(len(faults), times(6, len(faults)))):
        stage.suffer(plot, call, problem)
    stage.leave()
    assert broker.terminate() in (0, 1)
    broker.restart()
    stage.meet()


# -- the start and the end ------------------------------------------------------------------------------


def starts(broker: BrokerProcess) -> bool:
    """Start it again; False if it ends instead of being ready."""
    broker.launch()
    eventually(lambda: READY in broker.stderr or broker.exit_status is not None, "it is ready, or has ended")
    if READY not in broker.stderr:
        return False
    broker.url = broker.wait_for(READY).removeprefix(READY)
    return True


@needs_strace
def test_failing_call_at_the_start_ends_the_broker_or_fails_a_topic(
    start_broker: StartBroker, peers: Peers, tmp_path: Path, rng: random.Random
) -> None:
    """The next start without a fault has everything."""
    output = tmp_path / "trace"
    broker = start_broker(**PATIENT)
    stage = Stage(broker, peers, output)
    life = stage.prepare(STEPS["trim"])

    def crash() -> None:
        stage.leave()
        broker.kill()
        broker.prefix = ()

    crash()
    broker.prefix = traced(output)
    broker.restart()
    stage.meet_again()
    life.sleep()
    calls = [call for call in stage.own(calls_in(output)) if call.name in CHANGES]
    crash()
    broker.restart()
    stage.meet()
    for call in rng.sample(calls, min(len(calls), times(6, len(calls)))):
        fault = fault_at(calls, call, "error=EIO")
        if fault is None:
            continue
        crash()
        broker.prefix = traced(output, fault)
        if starts(broker):
            stage.meet_again()
            life.sleep()
            codes = {one.publish() for one in stage.lives}
            assert codes <= {"", "storage_failed"}, (call, codes)
            crash()
        else:
            assert broker.wait() == 3
            assert "Input/output error" in broker.stderr
            broker.prefix = ()
        assert any(one.struck for one in calls_in(output)), call
        broker.restart()
        stage.meet()


@needs_strace
def test_failed_sync_at_the_end_gives_an_exit_status(
    start_broker: StartBroker, peers: Peers, tmp_path: Path, rng: random.Random
) -> None:
    """An index that cannot be written does not."""
    broker = start_broker(**PATIENT)
    stage = Stage(broker, peers, tmp_path / "trace")

    def end(fault: Fault | None = None) -> tuple[list[Call], int]:
        """Stop it with an active topic that has unsynced records."""
        stage.leave()
        assert broker.exit_status is not None or broker.terminate() == 0
        broker.restart()
        stage.meet_again()
        stage.other.sleep()
        assert not stage.other.publish()
        with Tracer(broker.pid, stage.output, fault) as tracer:
            status = broker.terminate()
        return [call for call in stage.own(tracer.calls) if call.name in CHANGES], status

    calls, status = end()
    assert status == 0
    for call in rng.sample(calls, min(len(calls), times(3, len(calls)))):
        _, status = end(fault_at(calls, call, "error=EIO"))
        assert status == (1 if call.path.endswith(".seg") else 0), call
        assert ("not everything is synced" in broker.stderr) == bool(status)
    stage.leave()
    broker.restart()
    stage.meet()


# -- others go on meanwhile -----------------------------------------------------------------------------


@needs_strace
@pytest.mark.parametrize("name", ["writev", "fdatasync"])
def test_disk_that_fails_for_one_topic_stops_no_other_and_no_reader(
    start_broker: StartBroker, peers: Peers, tmp_path: Path, name: str
) -> None:
    broker = start_broker(**PATIENT)
    stage = Stage(broker, peers, tmp_path / "trace")
    life = stage.prepare(STEPS["written publish"])
    fault = Fault(name, 1, "error=EIO", str(life.segments[-1]), lasting=True)
    with Tracer(broker.pid, stage.output, fault):
        assert life.publish(durability="synced") == "storage_failed"
        for _ in range(20):
            assert life.publish() == "storage_failed"
            assert [stage.other.publish(), stage.other.publish(durability="synced")] == ["", ""]
            life.check()
    assert life.publish() == "storage_failed"
    stage.leave()
    assert broker.terminate() == 1
    broker.restart()
    stage.meet()


@needs_strace
def test_written_publishes_are_answered_during_a_slow_fsync(
    start_broker: StartBroker, peers: Peers, tmp_path: Path
) -> None:
    broker = start_broker(**PATIENT)
    stage = Stage(broker, peers, tmp_path / "trace")
    fast, same = peers.fast(broker), peers.fast(broker)
    fast.publish("slow", [b"x"])
    with Tracer(
        broker.pid, stage.output, Fault("fdatasync", 1, "delay_enter=60000000", lasting=True)
    ) as tracer:
        asked = fast.send_publish("slow", [b"y"], "synced")
        for _ in range(100):
            assert not stage.other.publish()
        assert same.publish("slow", [b"z"]).durability == "written"
        assert fast.is_silent(0)
    assert replied(fast.answer_to(asked)).durability == "synced"
    assert "fdatasync" in {call.name for call in tracer.calls}


CLIENTS, ROUNDS = 20, 10


@needs_strace
@pytest.mark.parametrize("delay_us", [0, 10_000])
def test_synced_publishes_of_several_clients_share_fsyncs(
    start_broker: StartBroker, peers: Peers, tmp_path: Path, delay_us: int
) -> None:
    """Each client has one publish on its way."""
    broker = start_broker(**PATIENT)
    clients = [peers.fast(broker) for _ in range(CLIENTS)]
    for client in clients:
        client.publish("t", [b"x"])
    slow = Fault("fdatasync", 1, f"delay_enter={delay_us}", lasting=True)
    with Tracer(broker.pid, tmp_path / "trace", slow) as tracer:
        for _ in range(ROUNDS):
            asked = [client.send_publish("t", [b"y"], "synced") for client in clients]
            for client, correlation in zip(clients, asked, strict=True):
                assert replied(client.answer_to(correlation)).durability == "synced"
    syncs = sum(call.name == "fdatasync" for call in tracer.calls)
    print(f"{CLIENTS * ROUNDS} publishes at synced, {syncs} fdatasync, each {delay_us} us longer")
    assert ROUNDS <= syncs <= CLIENTS * ROUNDS / 2


# -- limits of the process --------------------------------------------------------------------------------


@needs_prlimit
@pytest.mark.parametrize("size", [500, 100_000])
def test_short_write_of_a_batch_leaves_nothing(
    start_broker: StartBroker, peers: Peers, tmp_path: Path, size: int
) -> None:
    broker = start_broker(**PATIENT)
    stage = Stage(broker, peers, tmp_path / "trace")
    life = stage.life()
    assert not life.publish(1, 20_000)
    for over in (0, 1, 8, 63, 64, 65, 72, 80, size // 2, size + 64):
        for durability in ("written", "synced"):
            before = life.segments[-1].stat().st_size
            with file_bytes(broker.pid, before + over):
                assert life.publish(1, size, durability) == "disk_low"
                assert life.segments[-1].stat().st_size == before
                life.check()
                assert not stage.other.publish(durability=durability)
            assert not life.publish(1, size, durability)
    life.check()
    stage.leave()
    broker.kill()
    broker.restart()
    stage.meet()
    assert all(segment.suffix == ".seg" for segment in life.segments[0].parent.glob("*.seg*"))


@needs_prlimit
@pytest.mark.parametrize("step", ["create", "first publish", "publish that rolls", "roll", "trim", "update"])
def test_short_write_of_settings_or_a_header_block_leaves_nothing(
    start_broker: StartBroker, peers: Peers, tmp_path: Path, step: str
) -> None:
    broker = start_broker(**PATIENT)
    stage = Stage(broker, peers, tmp_path / "trace")
    for size in (0, 1, 50, 95):
        life = stage.prepare(STEPS[step])
        with file_bytes(broker.pid, size):
            assert STEPS[step].act(life) == "disk_low"
            life.check()
        assert stage.half_made == []
        assert not STEPS[step].act(life)
    stage.leave()
    assert broker.terminate() == 0
    broker.restart()
    stage.meet()


@needs_strace
@needs_prlimit
@pytest.mark.parametrize("over", [1, 64, 70, 300])
def test_short_write_that_cannot_be_cut_off_is_quarantined_by_the_next_start(
    start_broker: StartBroker, peers: Peers, tmp_path: Path, over: int
) -> None:
    """Until then the topic takes no writes, and readers see nothing of it."""
    broker = start_broker(**PATIENT)
    stage = Stage(broker, peers, tmp_path / "trace")
    life = stage.life()
    assert not life.publish(1, 20_000)
    segment = life.segments[-1]
    before = segment.stat().st_size
    fault = Fault("ftruncate", 1, "error=EIO")
    with Tracer(broker.pid, stage.output, fault), file_bytes(broker.pid, before + over):
        assert life.publish(1, 500) == "storage_failed"
    life.account.was_not_written()
    assert segment.stat().st_size == before + over
    assert life.publish() == "storage_failed"
    life.account.was_not_written()
    life.check()
    assert not stage.other.publish()
    stage.leave()
    assert broker.terminate() == 1
    assert segment.stat().st_size == before + over, "it is left as it was"
    broker.restart()
    stage.meet()
    (torn,) = segment.parent.glob("*.torn")
    assert torn.stat().st_size == over


@needs_prlimit
def test_broker_without_descriptors_is_busy_only_where_a_file_has_to_be_opened(
    start_broker: StartBroker, peers: Peers, tmp_path: Path
) -> None:
    broker = start_broker(**PATIENT)
    stage = Stage(broker, peers, tmp_path / "trace")
    sleeping = [stage.prepare(STEPS["trim"]) for _ in range(times(6, 12))]
    new = stage.life("new")
    stage.leave()
    assert broker.terminate() == 0
    broker.restart()
    stage.meet_again()
    stage.other.sleep()
    assert not stage.other.publish()
    assert new.read() == "unknown_topic"
    with descriptors_left(broker.pid, 0):
        for life in sleeping:
            assert [life.publish(), life.read(), life.roll()] == ["busy"] * 3
        assert [new.create(), new.publish(), stage.other.roll()] == ["busy"] * 3
        for durability in ("written", "synced"):
            assert not stage.other.publish(durability=durability)
        stage.other.check()
        assert stage.half_made == []
    for left, life in enumerate(sleeping, 1):
        with descriptors_left(broker.pid, left):
            assert life.publish() in {"", "busy"}
            assert not stage.other.publish(durability="synced")
        assert not life.publish(durability="synced")
        life.check()
    assert [stage.other.roll(), new.create(), new.publish(), stage.life("more").publish()] == [""] * 4
    stage.leave()
    assert broker.terminate() == 0
    broker.restart()
    stage.meet()
