"""The thread that carries requests and answers between one event loop and a broker.

The loop never polls a socket and no call has a thread of its own: the loop puts tickets into an inbox and
rings a bell, the thread that owns the sockets hands back those that are settled, all of a burst at once.

    loop   ask ──► inbox ──► thread: line, line, ... ──► broker
           outcome ◄── relay ◄── thread ◄───────────────
"""

from __future__ import annotations

import math
import os
import secrets
import threading
import time
from asyncio import Future, get_running_loop, shield
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from weakref import finalize

import zmq

from quoth.aio.loop_bridge import LoopBridge
from quoth.connection.connection import WATCH, Context, Link
from quoth.connection.wakeup import PipeWakeup
from quoth.core.request_state import RequestState
from quothwire.errors import QuothError, error
from quothwire.protocol.binary_codec import Answer

ASKED_MAX = 32
"""Requests on one connection at a time: a broker keeps 64 replies for a client that is slow to take them."""
LINES_MAX = 64
"""Connections: four descriptors each. Above 2,048 requests at once they get more than their share."""
LOOK_S = 1.0
"""How often the thread looks whether its loop is closed, if nothing else happens."""


class Ticket:
    """An exchange that was handed in, and what has become of it. Of the loop, but for the exchange."""

    __slots__ = ("exchange", "on_settled", "outcome", "waiter")

    def __init__(self, exchange: RequestState, on_settled: Callable[[Ticket], None] | None) -> None:
        self.exchange = exchange
        self.outcome: Answer | QuothError | None = None
        self.waiter: Future[None] | None = None
        self.on_settled = on_settled

    def settle(self, outcome: Answer | QuothError) -> None:
        """This is what came of it, unless something else has before."""
        if self.outcome is None:
            self.outcome = outcome
            if self.waiter is not None and not self.waiter.done():
                self.waiter.set_result(None)
            if self.on_settled is not None:
                self.on_settled(self)


class SharedLink:
    """A link and the tickets whose answers come on it, by their correlation id.

    is_stale: it holds a request that was given up while nobody was there to take it. It would be sent when
    somebody is, however late.
    """

    def __init__(self, link: Link) -> None:
        self.link = link
        self.asked: dict[int, Ticket] = {}
        self.is_stale = False

    def give_up(self, correlation: int) -> None:
        """Nobody waits for this answer any more."""
        if self.asked.pop(correlation, None) is not None and not self.link.connected:
            self.is_stale = True


class IOThread:
    """One thread and its connections, for one event loop. Its methods are for that loop."""

    def __init__(self, context: Context | None, url: str) -> None:
        self.url = url
        self.relay = LoopBridge(get_running_loop())
        self.context: Context = context or zmq.Context()
        self._owns_context = context is None
        self._pid = os.getpid()
        self._correlation = secrets.randbits(32)
        self._inbox: deque[tuple[Callable[[Ticket], None], Ticket]] = deque()
        self._bell = PipeWakeup()
        finalize(self, self._bell.close).atexit = False  # not before: whoever holds this may ring
        self._rung = False
        self._stopping = False
        self._end: tuple[str, ...] = ()
        """Why nothing is carried any more, as soon as it is not: code, text and perhaps a hint."""
        self._ended: Future[None] = self.relay.loop.create_future()
        self._lines: list[SharedLink] = []
        self._due = math.inf
        """No exchange is due before."""
        self._poller = zmq.Poller()
        self._poller.register(self._bell.fd, zmq.POLLIN)
        self._thread = threading.Thread(target=self._run, name="quoth-aio", daemon=True)
        self._thread.start()

    # -- for the loop -----------------------------------------------------------------------------------

    def check(self) -> None:
        """Raise ``closed`` if nothing is carried any more, ``bad_request`` in another loop."""
        if os.getpid() != self._pid:
            raise error("closed", "an asyncio client stays with the process that made it", "connect here")
        if self._end:
            raise error(*self._end)
        if get_running_loop() is not self.relay.loop:
            raise error("bad_request", "this client belongs to another event loop", "connect in this one")

    @property
    def is_stopping(self) -> bool:
        """True if it takes no more requests."""
        return self._stopping or bool(self._end)

    @property
    def connected(self) -> bool:
        """Is the broker there, as far as is known?"""
        return any(line.link.connected for line in tuple(self._lines))

    def ask(self, exchange: RequestState, on_settled: Callable[[Ticket], None] | None = None) -> Ticket:
        """Hand in an exchange; the loop tells `on_settled` of its outcome.

        Raises what `check` raises, and what cannot be encoded.
        """
        self.check()
        self._correlation += 1
        exchange.begin(self._correlation, time.monotonic())
        ticket = Ticket(exchange, on_settled)
        self._put(self._send_first, ticket)
        return ticket

    async def outcome(self, ticket: Ticket) -> Answer | QuothError:
        """Wait for what becomes of it: an answer, which may be a refusal, or the error that none came.

        Whoever is cancelled here may wait again.
        """
        while ticket.outcome is None:
            ticket.waiter = self.relay.loop.create_future()
            await ticket.waiter
        return ticket.outcome

    def hurry(self, ticket: Ticket) -> None:
        """Take note that an exchange is due earlier than when it was handed in."""
        if ticket.outcome is None:
            self._put(self._note_due, ticket)

    def drop(self, ticket: Ticket) -> None:
        """Nobody wants to know any more. Any thread may say so."""
        if ticket.outcome is None:
            self._put(self._forget, ticket)

    def stop(self) -> None:
        """Let the thread end. Any thread may say so; see `ended`."""
        self._stopping = True
        if not self._end:
            self._bell.ring()

    async def ended(self) -> None:
        """Wait until the thread has ended and its connections are closed."""
        if os.getpid() != self._pid or get_running_loop() is not self.relay.loop:
            return  # it ends by itself
        await shield(self._ended)
        self._thread.join()

    def _put(self, action: Callable[[Ticket], None], ticket: Ticket) -> None:
        self._inbox.append((action, ticket))
        if self._end:  # it may have ended before it found this
            ticket.settle(error(*self._end))
        elif not self._rung:
            self._rung = True
            self._bell.ring()

    # -- the thread -------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while not self._stopping and not self.relay.loop.is_closed():
                now = time.monotonic()  # what has come by then is taken before anything is given up
                ready = dict(self._poller.poll(self._pause(now)))
                if self._bell.fd in ready:
                    self._take_inbox()
                for line in self._lines:
                    self._take_answers(line, ready)
                WATCH.look(now)
                self._look_at_clock(now)
                for line in [line for line in self._lines if line.is_stale]:
                    self._renew(line)
            self._finish("closed", "the client is closed")
        except zmq.ContextTerminated:
            self._finish("closed", "the client or the broker in this process was closed")
        except BaseException as defect:
            self._finish("internal", f"the client's thread ended: {defect!r}", "please report this")

    def _pause(self, now: float) -> int:
        """Milliseconds for which there is nothing to do unless something comes."""
        return math.ceil(max(0.0, min(self._due - now, LOOK_S)) * 1_000)

    def _take_inbox(self) -> None:
        self._bell.hush()
        self._rung = False
        while self._inbox:
            action, ticket = self._inbox.popleft()
            action(ticket)

    def _take_answers(self, line: SharedLink, ready: dict[object, int]) -> None:
        link = line.link
        if link.monitor in ready and link.look():
            now = time.monotonic()
            for ticket in line.asked.values():
                self._go_on(line, ticket, now, found=True)
        if link.socket not in ready:
            return
        while (answer := link.receive()) is not None:
            asked = line.asked.get(answer.correlation)
            if asked is not None:
                self._take(line, asked, answer)
            if not line.asked:
                return  # to find that there is nothing more would take 5 us

    def _take(self, line: SharedLink, ticket: Ticket, answer: Answer) -> None:
        if ticket.exchange.is_settled_by(answer, time.monotonic()):
            del line.asked[answer.correlation]
            self._tell(ticket, answer)
        else:
            self._note_due(ticket)

    def _look_at_clock(self, now: float) -> None:
        if now < self._due:
            return
        for line in self._lines:
            for ticket in list(line.asked.values()):
                exchange = ticket.exchange
                if exchange.is_over(now):
                    line.give_up(exchange.correlation)
                    self._tell(ticket, line.link.nobody(exchange.what))
                elif now >= exchange.due:
                    self._go_on(line, ticket, now)
        dues = (ticket.exchange.due for line in self._lines for ticket in line.asked.values())
        self._due = min(dues, default=math.inf)

    def _send_first(self, ticket: Ticket) -> None:
        try:
            line = self._line()
        except QuothError as problem:
            self._tell(ticket, problem)
            return
        line.asked[ticket.exchange.correlation] = ticket
        self._send(line, ticket)

    def _note_due(self, ticket: Ticket) -> None:
        self._due = min(self._due, ticket.exchange.due)

    def _forget(self, ticket: Ticket) -> None:
        for line in self._lines:
            line.give_up(ticket.exchange.correlation)

    def _go_on(self, line: SharedLink, ticket: Ticket, now: float, *, found: bool = False) -> None:
        if ticket.exchange.is_to_be_sent(now, found=found, connected=bool(line.link.connected)):
            self._send(line, ticket)

    def _send(self, line: SharedLink, ticket: Ticket) -> None:
        with suppress(zmq.Again):
            line.link.send(ticket.exchange.frames)
            ticket.exchange.unheard += 1
        self._note_due(ticket)

    def _line(self) -> SharedLink:
        """A line for one more request. Raises `QuothError` if there is none and none can be made."""
        for line in self._lines:
            if len(line.asked) < ASKED_MAX:
                return line
        if len(self._lines) == LINES_MAX:
            return min(self._lines, key=lambda line: len(line.asked))
        line = SharedLink(self._link())
        self._lines.append(line)
        return line

    def _link(self) -> Link:
        link = Link(self.context, self.url)
        for socket in (link.socket, link.monitor):
            self._poller.register(socket, zmq.POLLIN)
        return link

    def _renew(self, line: SharedLink) -> None:
        """Give a line another link, and that what is still wanted."""
        for socket in (line.link.socket, line.link.monitor):
            self._poller.unregister(socket)
        line.link.close()
        try:
            line.link = self._link()
        except QuothError as problem:
            self._lines.remove(line)
            for ticket in line.asked.values():
                self._tell(ticket, problem)
            return
        line.is_stale = False
        for ticket in line.asked.values():
            self._send(line, ticket)

    def _tell(self, ticket: Ticket, outcome: Answer | QuothError) -> None:
        self.relay.put(ticket.settle, outcome)

    def _finish(self, *why: str) -> None:
        """The thread ends: nothing is carried any more."""
        self._end = why
        for line in self._lines:
            line.link.close()
            for ticket in line.asked.values():
                self._tell(ticket, error(*why))
        while self._inbox:
            _, ticket = self._inbox.popleft()
            self._tell(ticket, error(*why))
        if self._owns_context:
            self.context.term()  # ends producers, too
        self.relay.put(self._ended.set_result, None)
