"""Keeps a reset of a connection from libzmq while it does not read that connection.

libzmq stops to read a connection whose queue is full. If the connection is reset then, libzmq 4.3.5 notes an
error, and goes on with what it has read once there is room. It ends the process if that holds a PING, which
it answers although the error has ruled that out: `Assertion failed: !_io_error (src/stream_engine_base.cpp)`.
A client that sends 33 requests and a PING, and is killed, is enough.

The kernel reports a reset of each descriptor in the set of epoll, wanted or not. The functions in
`quothd._native.polling` report it as input where libzmq polls for input, as output where it polls for output
alone, and not at all where it polls for nothing. So libzmq finds it when it reads or writes.
"""

from __future__ import annotations

import sys

from quothwire.native import compiled


@compiled("quothd._native.polling")
def guard_polling() -> bool:
    """Put these functions between libzmq and the kernel, for all sockets of the process.

    Returns False where that is not possible, as without compiled functions. Other systems than Linux report
    nothing of a connection that is not polled.
    """
    return sys.platform != "linux"
