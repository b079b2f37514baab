"""The I/O thread: it owns the sockets of one event loop's client.

The loop never polls a socket, and no call has a thread of its own. The loop puts tickets into an inbox and
wakes the thread, which gives them back when they are settled, all of a burst at once.

    loop   ask ──► inbox ──► thread: link, link, ... ──► broker
           outcome ◄── loop bridge ◄── thread ◄─────────
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
from quoth.connection.connection import WATCH, Context, Link, closed
from quoth.connection.wakeup import PipeWakeup
from quoth.core.request_state import RequestState
from quoth.core.timing import Timing
from quothwire.errors import QuothError, error
from quothwire.protocol.binary_codec import Answer

ASKED_MAX = 32
"""Requests on one connection at a time: a broker keeps 64 replies for a client that is slow to take them."""
LINKS_MAX = 64
"""Connections of four descriptors each. More than 2,048 requests at once share them all the same."""
CHECK_S = 1.0
"""Seconds between two checks whether the loop is closed, if nothing else happens."""


class Ticket:
    """A request and its outcome. Belongs to the loop, except for the request, which belongs to the thread."""

    __slots__ = ("on_settled", "outcome", "request", "waiter")

    def __init__(self, request: RequestState, on_settled: Callable[[Ticket], None] | None) -> None:
        self.request = request
        self.outcome: Answer | QuothError | None = None
        self.waiter: Future[None] | None = None
        self.on_settled = on_settled

    def settle(self, outcome: Answer | QuothError) -> None:
        """Set the outcome, unless it is set already."""
        if self.outcome is None:
            self.outcome = outcome
            if self.waiter is not None and not self.waiter.done():
                self.waiter.set_result(None)
            if self.on_settled is not None:
                self.on_settled(self)


class SharedLink:
    """A link and the tickets whose answers come on it, by their correlation id.

    is_stale: its queue holds a request that was given up while no broker was there. A later connection would
    send it.
    """

    def __init__(self, link: Link) -> None:
        self.link = link
        self.asked: dict[int, Ticket] = {}
        self.is_stale = False

    def give_up(self, correlation: int) -> None:
        """Give up a request."""
        if self.asked.pop(correlation, None) is not None and not self.link.connected:
            self.is_stale = True


class IOThread:
    """One thread and its connections, for one event loop, which calls its public methods."""

    def __init__(self, context: Context | None, url: str, timing: Timing) -> None:
        self.url = url
        self.timing = timing
        self.links_max, self.asked_max = LINKS_MAX, ASKED_MAX
        self.bridge = LoopBridge(get_running_loop())
        self.context: Context = context or zmq.Context()
        self._owns_context = context is None
        self._pid = os.getpid()
        self._correlation = secrets.randbits(32)
        self._inbox: deque[tuple[Callable[[Ticket], None], Ticket]] = deque()
        self._wakeup = PipeWakeup()
        finalize(self, self._wakeup.close).atexit = False  # not before: the owner may still wake it
        self._woken = False
        self._stopping = False
        self._end: tuple[str, ...] = ()
        """The error with which the thread has ended: code, text and perhaps a hint."""
        self._ended: Future[None] = self.bridge.loop.create_future()
        self._links: list[SharedLink] = []
        self._due = math.inf
        """No request is due before."""
        self._poller = zmq.Poller()
        self._poller.register(self._wakeup.fd, zmq.POLLIN)
        self._thread = threading.Thread(target=self._run, name="quoth-aio", daemon=True)
        self._thread.start()

    # -- for the loop -----------------------------------------------------------------------------------

    def check(self) -> None:
        """Raise ``closed`` if the thread has ended, ``bad_request`` in another loop."""
        if os.getpid() != self._pid:
            raise error("closed", "an asyncio client stays with the process that made it", "connect here")
        if self._end:
            raise error(*self._end)
        if get_running_loop() is not self.bridge.loop:
            raise error("bad_request", "this client belongs to another event loop", "connect in this one")

    @property
    def is_stopping(self) -> bool:
        """True if it takes no more requests."""
        return self._stopping or bool(self._end)

    @property
    def connected(self) -> bool:
        """True if the broker is there, as far as is known."""
        return any(shared.link.connected for shared in tuple(self._links))

    def ask(self, request: RequestState, on_settled: Callable[[Ticket], None] | None = None) -> Ticket:
        """Send a request; the loop calls `on_settled` with its outcome.

        Raises what `check` raises, and ``bad_request`` for what cannot be encoded.
        """
        self.check()
        self._correlation += 1
        request.begin(self._correlation, time.monotonic(), self.timing.resend)
        ticket = Ticket(request, on_settled)
        self._put(self._send_first, ticket)
        return ticket

    async def outcome(self, ticket: Ticket) -> Answer | QuothError:
        """Wait for the outcome of a request: an answer, which may be a refusal, or the error that none came.

        A task that is cancelled here may wait again.
        """
        while ticket.outcome is None:
            ticket.waiter = self.bridge.loop.create_future()
            await ticket.waiter
        return ticket.outcome

    def update_due(self, ticket: Ticket) -> None:
        """Note that a request is due earlier than when it was sent."""
        if ticket.outcome is None:
            self._put(self._note_due, ticket)

    def drop(self, ticket: Ticket) -> None:
        """Give a request up. Any thread may call it."""
        if ticket.outcome is None:
            self._put(self._forget, ticket)

    def stop(self) -> None:
        """Let the thread end. Any thread may call it; see `ended`."""
        self._stopping = True
        if not self._end:
            self._wakeup.wake()

    async def ended(self) -> None:
        """Wait until the thread has ended and its connections are closed."""
        if os.getpid() != self._pid or get_running_loop() is not self.bridge.loop:
            return  # it ends by itself
        await shield(self._ended)
        self._thread.join()

    def _put(self, action: Callable[[Ticket], None], ticket: Ticket) -> None:
        self._inbox.append((action, ticket))
        if self._end:  # it may have ended before it found this
            ticket.settle(error(*self._end))
        elif not self._woken:
            self._woken = True
            self._wakeup.wake()

    # -- the thread -------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while not self._stopping and not self.bridge.loop.is_closed():
                # Answers that have come by then are taken before a request is given up.
                now = time.monotonic()
                ready = dict(self._poller.poll(self._pause(now)))
                if self._wakeup.fd in ready:
                    self._take_inbox()
                for shared in self._links:
                    self._take_answers(shared, ready)
                WATCH.check(now)
                self._check_requests(now)
                for shared in [shared for shared in self._links if shared.is_stale]:
                    self._renew(shared)
            self._finish("closed", "the client is closed")
        except zmq.ContextTerminated:
            self._finish("closed", closed().text)
        except BaseException as defect:
            self._finish("internal", f"the client's thread ended: {defect!r}", "please report this")

    def _pause(self, now: float) -> int:
        """Return the milliseconds for which there is nothing to do unless an answer comes."""
        return math.ceil(max(0.0, min(self._due - now, CHECK_S)) * 1_000)

    def _take_inbox(self) -> None:
        self._wakeup.clear()
        self._woken = False
        while self._inbox:
            action, ticket = self._inbox.popleft()
            action(ticket)

    def _take_answers(self, shared: SharedLink, ready: dict[object, int]) -> None:
        link = shared.link
        if link.monitor in ready and link.read_events():
            now = time.monotonic()
            for ticket in shared.asked.values():
                self._go_on(shared, ticket, now, found=True)
        if link.socket not in ready:
            return
        while (answer := link.receive()) is not None:
            asked = shared.asked.get(answer.correlation)
            if asked is not None:
                self._take(shared, asked, answer)
            if not shared.asked:
                return  # another receive would take 5 us to find nothing

    def _take(self, shared: SharedLink, ticket: Ticket, answer: Answer) -> None:
        if ticket.request.is_settled_by(answer, time.monotonic()):
            del shared.asked[answer.correlation]
            self._settle(ticket, answer)
        else:
            self._note_due(ticket)

    def _check_requests(self, now: float) -> None:
        if now < self._due:
            return
        for shared in self._links:
            for ticket in list(shared.asked.values()):
                request = ticket.request
                if request.is_over(now):
                    shared.give_up(request.correlation)
                    self._settle(ticket, shared.link.no_answer(request.what))
                elif now >= request.due:
                    self._go_on(shared, ticket, now)
        dues = (ticket.request.due for shared in self._links for ticket in shared.asked.values())
        self._due = min(dues, default=math.inf)

    def _send_first(self, ticket: Ticket) -> None:
        try:
            shared = self._shared_link()
        except QuothError as problem:
            self._settle(ticket, problem)
            return
        shared.asked[ticket.request.correlation] = ticket
        self._send(shared, ticket)

    def _note_due(self, ticket: Ticket) -> None:
        self._due = min(self._due, ticket.request.due)

    def _forget(self, ticket: Ticket) -> None:
        for shared in self._links:
            shared.give_up(ticket.request.correlation)

    def _go_on(self, shared: SharedLink, ticket: Ticket, now: float, *, found: bool = False) -> None:
        if ticket.request.is_to_be_sent(now, found=found, connected=bool(shared.link.connected)):
            self._send(shared, ticket)

    def _send(self, shared: SharedLink, ticket: Ticket) -> None:
        with suppress(zmq.Again):
            shared.link.send(ticket.request.frames)
            ticket.request.unanswered += 1
        self._note_due(ticket)

    def _shared_link(self) -> SharedLink:
        """Return a link for one more request. Raises `QuothError` if none can be made."""
        for shared in self._links:
            if len(shared.asked) < self.asked_max:
                return shared
        if len(self._links) == self.links_max:
            return min(self._links, key=lambda shared: len(shared.asked))
        shared = SharedLink(self._link())
        self._links.append(shared)
        return shared

    def _link(self) -> Link:
        link = Link(self.context, self.url)
        for socket in (link.socket, link.monitor):
            self._poller.register(socket, zmq.POLLIN)
        return link

    def _renew(self, shared: SharedLink) -> None:
        """Replace a stale connection, and send again what is not given up."""
        for socket in (shared.link.socket, shared.link.monitor):
            self._poller.unregister(socket)
        shared.link.close()
        try:
            shared.link = self._link()
        except QuothError as problem:
            self._links.remove(shared)
            for ticket in shared.asked.values():
                self._settle(ticket, problem)
            return
        shared.is_stale = False
        for ticket in shared.asked.values():
            self._send(shared, ticket)

    def _settle(self, ticket: Ticket, outcome: Answer | QuothError) -> None:
        self.bridge.put(ticket.settle, outcome)

    def _finish(self, *end: str) -> None:
        """End the thread: close the connections and settle all tickets with an error."""
        self._end = end
        for shared in self._links:
            shared.link.close()
            for ticket in shared.asked.values():
                self._settle(ticket, error(*end))
        while self._inbox:
            _, ticket = self._inbox.popleft()
            self._settle(ticket, error(*end))
        if self._owns_context:
            self.context.term()  # ends producers, too
        self.bridge.put(self._ended.set_result, None)
