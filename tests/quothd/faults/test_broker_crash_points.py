"""A broker process that dies instead of a call that changes the disk, at work or at its start.

Acknowledged batches are stored once and in order, all others wholly or not at all.
"""

from __future__ import annotations

import copy
import random
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from kit.broker.brokers import BrokerProcess, StartBroker
from kit.broker.peers import Peers
from kit.broker.scenarios import DIED, PATIENT, STEPS, Life, Stage, settings_for
from kit.machine.limits import file_bytes, needs_prlimit
from kit.machine.tracing import CHANGES, Call, Fault, Tracer, calls_in, fault_at, needs_strace, traced
from kit.scale import times

DEATH = "signal=SIGKILL"
OF_TWO_THREADS = "publish of a large transaction"
"""A step of two threads: equal calls of the second one cannot be struck before those of the first."""

pytestmark = needs_strace


def changes(stage: Stage, calls: list[Call]) -> list[Call]:
    """Return the calls that change the disk, or that make a change durable."""
    return [call for call in stage.own(calls) if call.name in CHANGES]


def wait_for_death(broker: BrokerProcess) -> None:
    """Wait until the broker has died."""
    assert broker.wait() == -signal.SIGKILL


# -- while it works ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("step", STEPS)
def test_death_at_each_change_loses_nothing(
    start_broker: StartBroker, peers: Peers, tmp_path: Path, rng: random.Random, step: str
) -> None:
    """Neither the topic of the step loses records, nor another one, nor those of former deaths."""
    broker = start_broker(**settings_for(step))
    stage = Stage(broker, peers, tmp_path / "trace")
    calls = changes(stage, stage.rehearse(STEPS[step]))
    for call in rng.sample(calls, min(len(calls), times(3, len(calls)))):
        fault = fault_at(calls, call, DEATH)
        if fault is None:
            assert step == OF_TWO_THREADS, call
            continue
        print(f"{step}: {fault} at {call.path}")
        life = stage.prepare(STEPS[step])
        assert not stage.other.publish()
        with Tracer(broker.pid, stage.output, fault):
            assert STEPS[step].act(life) in ("", DIED)
            wait_for_death(broker)
        stage.leave()
        broker.restart()
        stage.meet()


def test_death_at_each_change_of_an_end_by_sigterm_loses_nothing(
    start_broker: StartBroker, peers: Peers, tmp_path: Path, rng: random.Random
) -> None:
    broker = start_broker(**PATIENT)
    stage = Stage(broker, peers, tmp_path / "trace")

    def end(fault: Fault | None = None) -> list[Call]:
        """Stop it with an active topic that has unsynced records."""
        stage.leave()
        broker.kill()
        broker.restart()
        stage.meet_again()
        stage.other.sleep()
        assert not stage.other.publish()
        with Tracer(broker.pid, stage.output, fault) as tracer:
            assert broker.terminate() == (-signal.SIGKILL if fault else 0)
        broker.restart()
        stage.meet()
        return changes(stage, tracer.calls)

    calls = end()
    for call in rng.sample(calls, min(len(calls), times(3, len(calls)))):
        end(fault_at(calls, call, DEATH))


# -- while it starts --------------------------------------------------------------------------------------


def die_at(step: str, name: str, nth: int) -> Callable[[Stage], Life]:
    """Return a death in a step, at the n-th call of a name."""

    def die(stage: Stage) -> Life:
        life = stage.prepare(STEPS[step])
        with Tracer(stage.broker.pid, stage.output, Fault(name, nth, DEATH)):
            assert STEPS[step].act(life) == DIED
            wait_for_death(stage.broker)
        return life

    return die


def die_with_a_torn_tail(stage: Stage) -> Life:
    """Die between the partial write of a batch and its truncation."""
    life = stage.prepare(STEPS["roll"])
    size = life.segments[-1].stat().st_size
    with (
        Tracer(stage.broker.pid, stage.output, Fault("ftruncate", 1, DEATH)),
        file_bytes(stage.broker.pid, size + 300),
    ):
        assert life.publish(5, 100) == DIED
        wait_for_death(stage.broker)
    assert life.segments[-1].stat().st_size == size + 300
    return life


DEATHS = {
    "before a batch is written": die_at("written publish", "writev", 1),
    "with a torn tail": die_with_a_torn_tail,
    "before a topic has its name": die_at("create", "rename", 2),
    "before a segment has its name": die_at("roll", "rename", 1),
    "before a segment is sealed": die_at("roll", "writev", 2),
    "before a transaction is decided": die_at(OF_TWO_THREADS, "rename", 2),
    "before its segments have their names": die_at(OF_TWO_THREADS, "rename", 3),
    "before the settings have their name": die_at("update", "rename", 1),
    "between index and segment that are trimmed": die_at("trim", "unlink", 2),
    "before a deleted topic is removed": die_at("delete", "unlinkat", 2),
}


@needs_prlimit
@pytest.mark.parametrize("death", DEATHS)
def test_death_at_each_change_of_the_next_start_loses_nothing(
    start_broker: StartBroker, peers: Peers, tmp_path: Path, rng: random.Random, death: str
) -> None:
    broker = start_broker(**PATIENT)
    stage = Stage(broker, peers, tmp_path / "trace")
    DEATHS[death](stage)
    stage.leave()
    kept = shutil.copytree(broker.directory, tmp_path / "kept")
    accounts = [copy.deepcopy(life.account) for life in stage.lives]

    broker.prefix = traced(stage.output)
    broker.restart()
    stage.meet_again()
    stage.other.sleep()
    stage.leave()
    broker.kill()
    calls = changes(stage, calls_in(stage.output))
    faults = {call: fault_at(calls, call, DEATH, same_names=True) for call in calls}
    out_of_reach = {(call.name, call.path) for call, fault in faults.items() if fault is None}
    assert out_of_reach <= {("fsync", str(broker.topics_directory))}, "each opening does this again"

    reached = [fault for fault in faults.values() if fault is not None]
    for fault in rng.sample(reached, min(len(reached), times(2, len(reached)))):
        print(f"{death}: {fault}")
        shutil.rmtree(broker.directory)
        shutil.copytree(kept, broker.directory)
        for life, account in zip(stage.lives, accounts, strict=True):
            life.account = copy.deepcopy(account)
        broker.prefix = traced(stage.output, fault)
        broker.launch()
        wait_for_death(broker)
        broker.prefix = ()
        broker.restart()
        stage.meet()
        stage.leave()
        broker.kill()
