"""A broker process that dies instead of a call that changes the disk, in whatever it is doing; and again at
the next start. What was acknowledged is there once and in order, the rest wholly or not at all.
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
"""What the second of them does alike cannot be struck before what the first one does."""

pytestmark = needs_strace


def changes(stage: Stage, calls: list[Call]) -> list[Call]:
    """The calls that change what is on the disk, or what is certain to be."""
    return [call for call in stage.own(calls) if call.name in CHANGES]


def died(broker: BrokerProcess) -> None:
    """Wait for its death."""
    assert broker.wait() == -signal.SIGKILL


# -- while it works ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("step", STEPS)
def test_death_at_each_change_loses_nothing(
    start_broker: StartBroker, peers: Peers, tmp_path: Path, rng: random.Random, step: str
) -> None:
    """C32: of the topic that is worked on, of all others, and of those that died before it."""
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
            died(broker)
        stage.leave()
        broker.restart()
        stage.meet()


def test_death_at_each_change_of_a_clean_end_loses_nothing(
    start_broker: StartBroker, peers: Peers, tmp_path: Path, rng: random.Random
) -> None:
    """C32: SIGTERM, then SIGKILL at any moment."""
    broker = start_broker(**PATIENT)
    stage = Stage(broker, peers, tmp_path / "trace")

    def end(fault: Fault | None = None) -> list[Call]:
        """Stop it with one topic awake and something to sync."""
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
    """Die in a step, at the n-th call of a name."""

    def die(stage: Stage) -> Life:
        life = stage.prepare(STEPS[step])
        with Tracer(stage.broker.pid, stage.output, Fault(name, nth, DEATH)):
            assert STEPS[step].act(life) == DIED
            died(stage.broker)
        return life

    return die


def die_with_a_torn_tail(stage: Stage) -> Life:
    """Die when a batch was written in part, before that could be cut off."""
    life = stage.prepare(STEPS["roll"])
    size = life.segments[-1].stat().st_size
    with (
        Tracer(stage.broker.pid, stage.output, Fault("ftruncate", 1, DEATH)),
        file_bytes(stage.broker.pid, size + 300),
    ):
        assert life.publish(5, 100) == DIED
        died(stage.broker)
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
    """C32, C33: a crash in the middle of making good for a crash."""
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
        died(broker)
        broker.prefix = ()
        broker.restart()
        stage.meet()
        stage.leave()
        broker.kill()
