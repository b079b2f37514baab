"""Makes the sockets of the announcements: an XPUB for tcp and ipc, and one for clients in this process.

In the manual mode of the first one, libzmq reports each subscription with the descriptor of its connection,
and leaves it to the broker to count it, and to subscribe the connection to what it may have. A client in this
process has no descriptor, and its memory is that of the program: the second one is an ordinary XPUB.

libzmq takes subscriptions into its memory before the broker sees them, as many as come while it does so. The
small queue lets the I/O thread wait for the broker, and the small buffer lets the client wait for both.
"""

from __future__ import annotations

from typing import NamedTuple

import zmq

from quothd.connections.monitor import Monitor

IO_THREADS = 2
"""Of the context. One is for requests; a flood of subscriptions keeps the other one busy."""
REQUESTS_AFFINITY, ANNOUNCEMENTS_AFFINITY = 1, 2
"""Each is a set of I/O threads, as bits."""
MESSAGE_BYTES_MAX = 1_024
"""Of a subscription and of a handshake, which takes up to 700. For more, libzmq closes the connection."""
SUBSCRIPTIONS_QUEUED_MAX = 2
"""Of a connection, between the I/O thread and the broker. libzmq reads until the queue is empty, and the I/O
thread fills a longer one as fast as that: 16 let thousands pass before the broker sees the first of them. The
key of a client takes one place for good, so with 1 there is none for its subscriptions."""
ANNOUNCEMENTS_QUEUED_MAX = 256
"""Of a connection that does not read: 16 KiB, and up to 200 bytes each where the topics' names are long."""
RECEIVED_BYTES, SENT_BYTES = 4 * 2**10, 64 * 2**10
"""Buffers of the kernel for a connection, which it doubles. What is in the former when the broker ends a
connection still comes."""


class Publisher(NamedTuple):
    """The sockets. remote: for tcp and ipc. local: for inproc. monitor: of the connections of the former."""

    remote: zmq.Socket[bytes]
    local: zmq.Socket[bytes]
    monitor: Monitor

    def close(self) -> None:
        """Close the sockets."""
        self.monitor.close()
        self.remote.close(linger=0)
        self.local.close(linger=0)


def open_publisher(context: zmq.Context[zmq.Socket[bytes]]) -> Publisher:
    """Make the sockets, before anything is bound: the monitor misses no connection."""
    remote = context.socket(zmq.XPUB)
    try:
        remote.set(zmq.XPUB_MANUAL, 1)
        remote.set(zmq.AFFINITY, ANNOUNCEMENTS_AFFINITY)
        remote.set(zmq.MAXMSGSIZE, MESSAGE_BYTES_MAX)
        remote.set(zmq.RCVHWM, SUBSCRIPTIONS_QUEUED_MAX)
        remote.set(zmq.SNDHWM, ANNOUNCEMENTS_QUEUED_MAX)
        remote.set(zmq.RCVBUF, RECEIVED_BYTES)
        remote.set(zmq.SNDBUF, SENT_BYTES)
        monitor = Monitor(context, remote)
    except BaseException:
        remote.close(linger=0)
        raise
    try:
        local = context.socket(zmq.XPUB)
    except BaseException:
        monitor.close()
        remote.close(linger=0)
        raise
    local.set(zmq.SNDHWM, ANNOUNCEMENTS_QUEUED_MAX)
    return Publisher(remote, local, monitor)
