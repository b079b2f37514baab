"""Brokers of tests end with the process that started them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kit.deadlines import DEADLINE_S, eventually
from kit.machine.processes import runs

STARTING = """
import sys
from pathlib import Path
from kit.broker.brokers import BrokerProcess

broker = BrokerProcess(Path(sys.argv[1])).start()
if sys.argv[2] == "frozen":
    broker.freeze()
print(broker.pid, flush=True)
sys.stdin.read()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="this system does not kill orphans")
@pytest.mark.parametrize("state", ["running", "frozen"])
def test_no_broker_outlives_a_test_process_that_is_killed(tmp_path: Path, state: str) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with subprocess.Popen(
        [sys.executable, "-c", STARTING, str(tmp_path), state],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment,
    ) as starting:
        assert starting.stdout is not None
        broker = int(starting.stdout.readline())
        assert runs(broker)
        starting.kill()
        starting.wait(DEADLINE_S)
    eventually(lambda: not runs(broker), "the broker has ended")
