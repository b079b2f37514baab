"""An attacker as a program: `attacker HOST PORT FLOOD CORES NICE`.

It says "ready", and for each line with a number of seconds it attacks so long and says what it has sent, as
JSON. It ends with its stdin.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time

from kit.floods.cores import pin
from kit.floods.engine import Engine
from kit.floods.floods import FLOODS


def main() -> None:
    """Attack as often as stdin says."""
    host, port, flood, cores, nice = sys.argv[1:]
    pin(os.getpid(), {int(core) for core in cores.split(",")})
    os.nice(int(nice))
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    plan = FLOODS[flood]()
    engine = Engine(host, int(port), plan._replace(connections=min(plan.connections, most - 100)))
    print("ready", flush=True)
    for line in sys.stdin:
        engine.run(time.monotonic() + float(line))
        print(json.dumps(engine.sent), flush=True)
