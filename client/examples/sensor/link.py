"""A bad network link: a process that carries TCP connections to a port, as well as its parent allows.

    python link.py PORT TARGET_PORT

Commands are lines on stdin, and last until the next one:

    calm                 carries everything
    drop                 cuts each connection at its next bytes, in the middle of them
    delay SECONDS        carries each piece so much later
    stall                carries nothing; nothing is lost
    deaf                 loses what comes from the target; the next command cuts the connections
    dark                 loses everything, likewise

It prints `ready`, then `cut` for each connection that it cuts, and ends with its parent.
"""

import asyncio
import contextlib
import os
import socket
import struct
import sys

HOST = "127.0.0.1"
PIECE_BYTES = 2**14
RESET = struct.pack("ii", 1, 0)
"""SO_LINGER: closing sends a reset and throws away unsent bytes."""

Connection = tuple[asyncio.StreamWriter, asyncio.StreamWriter]
"""To the device, and to the target."""


class Link:
    """All connections, and the condition of the network."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._connections: set[Connection] = set()
        self._torn: set[Connection] = set()
        """Connections that are cut at their next bytes."""
        self._delay = 0.0
        self._loses_answers = self._loses_requests = False
        self._passes = asyncio.Event()
        self._passes.set()

    def obey(self, command: str, seconds: float = 0.0) -> None:
        """Change the condition."""
        if self._loses_answers:
            for connection in list(self._connections):
                self._cut(connection)  # TCP does not go on behind lost bytes
        self._delay = seconds
        self._loses_answers = command in ("deaf", "dark")
        self._loses_requests = command == "dark"
        self._torn = set(self._connections) if command == "drop" else set()
        if command == "stall":
            self._passes.clear()
        else:
            self._passes.set()

    async def connect(self, requests: asyncio.StreamReader, device: asyncio.StreamWriter) -> None:
        """Carry a connection of the device until one side or the link ends it."""
        try:
            answers, target = await asyncio.open_connection(HOST, self._target)
        except OSError:
            _reset(device)
            return
        connection = device, target
        self._connections.add(connection)
        tasks = [
            asyncio.create_task(self._carry(requests, target, connection)),
            asyncio.create_task(self._carry(answers, device, connection)),
        ]
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        self._close(connection)
        await asyncio.wait(tasks)

    async def _carry(
        self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, connection: Connection
    ) -> None:
        with contextlib.suppress(OSError):
            while piece := await source.read(PIECE_BYTES):
                await asyncio.sleep(self._delay)
                await self._passes.wait()
                if connection in self._torn:
                    sink.write(piece[: len(piece) // 2])
                    self._cut(connection)
                    return
                if not (self._loses_answers if sink is connection[0] else self._loses_requests):
                    sink.write(piece)
                    await sink.drain()

    def _cut(self, connection: Connection) -> None:
        print("cut", flush=True)
        self._close(connection)

    def _close(self, connection: Connection) -> None:
        self._connections.discard(connection)
        self._torn.discard(connection)
        for writer in connection:
            _reset(writer)


def _reset(writer: asyncio.StreamWriter) -> None:
    if not writer.is_closing():
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        writer.transport.abort()


async def main(port: int, target: int) -> None:
    """Carry connections until stdin ends."""
    link = Link(target)
    async with await asyncio.start_server(link.connect, HOST, port):
        print("ready", flush=True)
        while line := await asyncio.to_thread(sys.stdin.readline):
            command, *seconds = line.split()
            link.obey(command, *map(float, seconds))
        os._exit(0)  # a network has nothing to finish, and a server would wait for its connections


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), int(sys.argv[2])))
