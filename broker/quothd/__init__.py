"""The daemon: a log per topic behind one ROUTER socket.

    from quothd import Broker

    with Broker("/var/lib/quoth") as broker:
        print(broker.url)

`broker` runs in any program, `daemon` as a process of its own, which `main` starts for the command line.

- `config`: the keys, the sources of their values, an example file, a check
- `frontend`: owns the sockets, finds the topic of a request, and collects the replies
- `requests`: the values that pass between the front end and the topics
- `topics`: one open topic, which owns its log and executes its requests
- `threads`: the threads and the queues between them
- `service`: the log of events, the notifications of systemd, the background check of segments
- `datadir`: the topics of a data directory, backup and restore
- `gateways`: processes that speak other protocols, and are clients of the broker
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from quothd.config.config import Config

if TYPE_CHECKING:
    from quothd.broker import Broker

__all__ = ["Broker", "Config"]


def __getattr__(name: str) -> Any:
    """Import the broker at its first use: every `quoth` command needs the configuration, few the broker."""
    if name == "Broker":
        from quothd.broker import Broker

        return Broker
    raise AttributeError(f"module 'quothd' has no attribute {name!r}")
