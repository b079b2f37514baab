"""A connection that its client does not look at, as it waits over another one while the network is cut.

As a program, `python -m kit.client.unwatched DIRECTORY`, it ends as soon as that connection is ended, or it
fails. It runs within `kit.machine.networks.OF_ITS_OWN`.
"""

from __future__ import annotations

import sys
import time
from contextlib import ExitStack, closing, suppress
from pathlib import Path

import zmq

from kit.broker.brokers import BrokerProcess
from kit.deadlines import eventually
from kit.machine.networks import Network
from quoth.connection.connection import Channel
from quoth.core.request_state import RequestState
from quothwire.errors import Disconnected
from quothwire.protocol.messages import Ping


def ask(channel: Channel, seconds: float) -> None:
    """Ask the broker whether it is there. Raises `Disconnected` if no answer comes within so many seconds."""
    channel.settle(RequestState(Ping(), deadline=time.monotonic() + seconds))


def main(directory: Path) -> None:
    """Wait until a connection that is not looked at has been ended."""
    with ExitStack() as stack:
        network = stack.enter_context(Network())
        broker = BrokerProcess(directory, prefix=network.prefix, host=network.address, insecure=True)
        stack.callback(broker.close)
        broker.start()
        context = stack.enter_context(zmq.Context())
        waits, rests = (stack.enter_context(closing(Channel(context, broker.url))) for _ in range(2))
        for channel in (waits, rests):
            ask(channel, 30.0)
        network.cut()

        def ended() -> bool:
            with suppress(Disconnected):
                ask(waits, 1.0)
            rests._link.read_events()
            return not rests._link.connected

        eventually(ended, "the other connection is ended, too", 12.0)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
