"""The daemon: a log per topic behind one ROUTER socket.

    from quothd import Broker

    with Broker("/var/lib/quoth") as broker:
        print(broker.url)

`main` composes it for the command line, `broker` for any program. A request goes from `frontend` (the
sockets) through `dispatcher` (which topic, which worker, or wait) to the topic's `worker`, which owns the
log; `readers` read sealed segments, `syncer` runs fsync. Answers and news come back as `events` through the
`outbox`.
"""

from quothd.broker import Broker
from quothd.config import Config

__all__ = ["Broker", "Config"]
