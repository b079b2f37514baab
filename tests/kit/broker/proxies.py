"""Proxies between a client and a broker: `Wire` passes bytes and can be cut, `Meddler` passes messages.

A rule of the test decides which requests and replies a `Meddler` loses or answers with an error.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import socket
import threading
from collections import deque
from collections.abc import Callable

import zmq

from kit.broker.peers import Context
from kit.deadlines import pause
from kit.machine.ports import free_port
from kit.zmtp import reset
from quothwire.closing import Closeable
from quothwire.errors import QuothError
from quothwire.protocol import binary_codec
from quothwire.protocol.binary_codec import Answer, Call
from quothwire.protocol.messages import Operation

_PIECE = 2**16


class ProxyThread(Closeable):
    """A thread that executes the orders that come through a pipe, one after the other."""

    def __init__(self, name: str) -> None:
        self.wakeup, self._wake = os.pipe()
        self._orders: deque[tuple[Callable[[], None], threading.Event]] = deque()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self.over = False

    def close(self) -> None:
        self.order(lambda: setattr(self, "over", True))
        self._thread.join()
        os.close(self.wakeup)
        os.close(self._wake)

    def order(self, what: Callable[[], None]) -> None:
        done = threading.Event()
        self._orders.append((what, done))
        os.write(self._wake, b"\0")
        assert done.wait(20), "the proxy hangs"

    def start(self) -> None:
        self._thread.start()

    def obey(self) -> None:
        os.read(self.wakeup, 1)
        what, done = self._orders.popleft()
        what()
        done.set()

    def _run(self) -> None:
        raise NotImplementedError


class _Pair:
    """A connection through the wire: the ends of client and broker, and the unsent bytes for each."""

    def __init__(self, client: socket.socket, broker: socket.socket) -> None:
        self.ends = (client, broker)
        self.other = {client: broker, broker: client}
        self.waiting = {client: bytearray(), broker: bytearray()}


class Wire(ProxyThread):
    """A TCP connection to a broker that can be cut, or pass nothing in one direction.

    loses_answers: bytes from the broker are thrown away. dead: nothing is read from either side. Use `cut` to
    end it: a connection that has lost something cannot go on. rate: bytes a second that pass to the broker, 0
    for as many as there are. passed: how many have.
    """

    def __init__(self, broker_url: str) -> None:
        super().__init__("wire")
        self.loses_answers = False
        self.dead = False
        self.cuts = 0
        self.rate = 0
        self.passed = 0
        host, _, port = broker_url.removeprefix("tcp://").rpartition(":")
        self._broker = (host, int(port))
        self._selector = selectors.DefaultSelector()
        self._listener = socket.create_server(("127.0.0.1", free_port()))
        self._listener.setblocking(False)
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._selector.register(self.wakeup, selectors.EVENT_READ)
        self._pairs: dict[socket.socket, _Pair] = {}
        self.url = f"tcp://127.0.0.1:{self._listener.getsockname()[1]}"
        self.start()

    def cut(self) -> None:
        """Cut every connection, and let new ones pass everything."""
        self.order(self._cut)

    def lose_answers(self) -> None:
        """Lose everything that the broker sends from now on."""
        self.order(lambda: setattr(self, "loses_answers", True))

    def die(self) -> None:
        """Lose everything on either side from now on, without an end of the connections."""
        self.order(lambda: setattr(self, "dead", True))

    def _cut(self) -> None:
        for pair in set(self._pairs.values()):
            self._end(pair)
            self.cuts += 1
        self.loses_answers = self.dead = False

    def _run(self) -> None:
        while not self.over:
            for key, events in self._selector.select():
                if key.fileobj is self._listener:
                    self._accept()
                elif key.fileobj == self.wakeup:
                    self.obey()
                elif isinstance(key.fileobj, socket.socket) and key.fileobj in self._pairs:
                    self._pass(key.fileobj, events)
            if self.dead:
                self._wait_for_orders()
        for pair in set(self._pairs.values()):
            self._end(pair)
        self._listener.close()
        self._selector.close()

    def _wait_for_orders(self) -> None:
        while self.dead and not self.over:
            self.obey()

    def _accept(self) -> None:
        client, _ = self._listener.accept()
        try:
            broker = socket.create_connection(self._broker, timeout=5)
        except OSError:
            client.close()
            return
        pair = _Pair(client, broker)
        for end in pair.ends:
            end.setblocking(False)
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._pairs[end] = pair
            self._selector.register(end, selectors.EVENT_READ)

    def _pass(self, end: socket.socket, events: int) -> None:
        pair = self._pairs[end]
        try:
            if events & selectors.EVENT_READ:
                slow = self.rate and end is pair.ends[0]
                piece = end.recv(max(1, self.rate // 50) if slow else _PIECE)
                if not piece:
                    self._end(pair)
                    return
                if slow:
                    pause(len(piece) / self.rate)
                if end is pair.ends[0]:
                    self.passed += len(piece)
                if end is pair.ends[0] or not self.loses_answers:
                    self._send(pair, pair.other[end], piece)
            if events & selectors.EVENT_WRITE:
                self._send(pair, end, b"")
        except BlockingIOError:
            pass
        except OSError:
            self._end(pair)

    def _send(self, pair: _Pair, end: socket.socket, piece: bytes) -> None:
        waiting = pair.waiting[end]
        waiting += piece
        with contextlib.suppress(BlockingIOError):
            del waiting[: end.send(waiting)]
        for one in pair.ends:
            self._listen(pair, one)

    def _listen(self, pair: _Pair, end: socket.socket) -> None:
        """Stop reading from a side while the other one does not take its bytes, as a real network does."""
        reads = len(pair.waiting[pair.other[end]]) <= 16 * _PIECE
        writes = bool(pair.waiting[end])
        events = selectors.EVENT_READ * reads | selectors.EVENT_WRITE * writes
        known = end in self._selector.get_map()
        if events and known:
            self._selector.modify(end, events)
        elif events:
            self._selector.register(end, events)
        elif known:
            self._selector.unregister(end)

    def _end(self, pair: _Pair) -> None:
        for end in pair.ends:
            self._pairs.pop(end, None)
            if end in self._selector.get_map():
                self._selector.unregister(end)
            reset(end)


Lost = bool
RequestRule = Callable[[Call], QuothError | Lost]
ReplyRule = Callable[[Call, Answer], QuothError | Lost]


def pass_on(*_: object) -> bool:
    return False


class Meddler(ProxyThread):
    """Passes the messages of the fast protocol between clients and a broker, except as rules decide.

    on_request, on_reply: called in a thread of its own. They return False to pass the message on, True to
    lose it, or an error that the client gets instead. requests: those for which that is decided, in order.
    """

    def __init__(self, context: Context, broker_url: str) -> None:
        super().__init__("meddler")
        self.on_request: RequestRule = pass_on
        self.on_reply: ReplyRule = pass_on
        self.requests: list[Call] = []
        self._calls: dict[tuple[bytes, int], Call] = {}
        self._front: zmq.Socket[bytes] = context.socket(zmq.ROUTER)
        self._back: zmq.Socket[bytes] = context.socket(zmq.DEALER)
        for one in (self._front, self._back):
            one.set(zmq.LINGER, 0)
            one.set(zmq.SNDHWM, 0)
            one.set(zmq.RCVHWM, 0)
        self.url = f"tcp://127.0.0.1:{free_port()}"
        self._front.bind(self.url)
        self._back.set(zmq.RECONNECT_IVL, 10)
        self._back.connect(broker_url)
        self.start()

    def count(self, operation: Operation) -> int:
        """Return how many requests of an operation clients have sent."""
        return sum(call.operation is operation for call in self.requests)

    def _run(self) -> None:
        poller = zmq.Poller()
        poller.register(self._front, zmq.POLLIN)
        poller.register(self._back, zmq.POLLIN)
        poller.register(self.wakeup, zmq.POLLIN)
        while not self.over:
            ready = dict(poller.poll())
            if self.wakeup in ready:
                self.obey()
            if self._front in ready:
                self._take_request(self._front.recv_multipart())
            if self._back in ready:
                self._take_reply(self._back.recv_multipart())
        self._front.close()
        self._back.close()

    def _take_request(self, frames: list[bytes]) -> None:
        client, empty, *body = frames
        call = binary_codec.decode_call(body)
        self._calls[client, call.correlation] = call
        verdict = self.on_request(call)
        self.requests.append(call)
        if verdict is False:
            self._back.send_multipart(frames)
        else:
            self._refuse([client, empty], call, verdict)

    def _take_reply(self, frames: list[bytes]) -> None:
        client, empty, *body = frames
        answer = binary_codec.decode_answer(body)
        call = self._calls[client, answer.correlation]
        verdict = self.on_reply(call, answer)
        if verdict is False:
            self._front.send_multipart(frames)
        else:
            self._refuse([client, empty], call, verdict)

    def _refuse(self, route: list[bytes], call: Call, verdict: QuothError | Lost) -> None:
        if isinstance(verdict, QuothError):
            self._front.send_multipart(
                route + binary_codec.encode_error(call.operation, call.correlation, verdict)
            )
