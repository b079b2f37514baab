"""Minutes of a sensor's life: nothing that it has confirmed is lost, nothing arrives twice.

    python client/examples/sensor --minutes 10 --seed 7

All processes are real: the sensor (`device.py`), `quoth forward`, a broker, and a bad link between these two
(`link.py`). Sensor and forwarder are killed and started again at random moments, one of them or both, as by a
reboot. The link drops, delays, stalls, loses answers, goes dark and dies. The broker is killed and stopped.
Then the link is calm, and the topic has to hold each confirmed reading exactly once, in order.

It prints a line with totals. The exit status is 1 if a reading is missing, doubled or out of order, or if one
of the processes has ended by itself; then the files stay.
"""

from __future__ import annotations

import argparse
import secrets
import shutil
import signal
import sys
import tempfile
from pathlib import Path

from services import Failure
from simulation import Simulation


def main() -> int:
    """Run a simulation; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="sensor", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=0.25, help="how long it lasts (default: 0.25)")
    parser.add_argument("--seed", type=int, help="of what happens when (default: another one each time)")
    options = parser.parse_args()
    seed = secrets.randbits(32) if options.seed is None else options.seed
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    directory = Path(tempfile.mkdtemp(prefix="sensor-"))
    print(f"seed {seed}, files in {directory}", file=sys.stderr, flush=True)
    simulation = Simulation(directory, seed, options.minutes * 60)
    try:
        verdict = simulation.run()
    except Failure as failure:
        problems = [str(failure)]
    else:
        problems = verdict.problems
        print(f"{verdict.stored:,} readings have arrived; {simulation.totals()}")
    for problem in problems:
        print(problem)
    if problems:
        print(f"seed {seed}, files in {directory}")
        return 1
    shutil.rmtree(directory)
    return 0


if __name__ == "__main__":
    sys.exit(main())
