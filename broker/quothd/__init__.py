"""The daemon: a log per topic behind one ROUTER socket.

    from quothd import Broker

    with Broker("/var/lib/quoth") as broker:
        print(broker.url)

`broker` is it for any program, `daemon` as a process of its own, which `main` composes for the command line;
`sources` reads the `config`, and what happens is written down in the `logbook`. A request goes from
`frontend` (the sockets) through `dispatcher` (which topic, which worker, or wait) to the topic's `worker`,
which owns the log; `readers` read sealed segments, `syncer` runs fsync. Answers and news come back as
`events` through the `outbox`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from quothd.config.config import Config

if TYPE_CHECKING:
    from quothd.broker import Broker

__all__ = ["Broker", "Config"]


def __getattr__(name: str) -> Any:
    """Load the broker when it is asked for: every `quoth` command needs the configuration, few need this."""
    if name == "Broker":
        from quothd.broker import Broker

        return Broker
    raise AttributeError(f"module 'quothd' has no attribute {name!r}")
