"""The front end: the thread that owns the socket of the requests.

ROUTER receives requests and sends replies. What takes long for one client happens in other threads, and so do
the announcements: no request of one client stalls another one.
"""

from __future__ import annotations

import contextlib
import threading
from collections import Counter, deque
from collections.abc import Sequence
from concurrent.futures import Future
from functools import partial

import zmq

from quothd.access.access import Access
from quothd.access.audit import AuditTrail
from quothd.access.clients_file import ClientTable
from quothd.announcing.announcer import Announcer
from quothd.config.config import Config
from quothd.connections.connection import COUNTED_BYTES, Connection, Frame
from quothd.connections.connection_table import ConnectionTable
from quothd.connections.memory import MemoryWatch
from quothd.connections.router import ReplyQueue, receive_messages, send_message, wait_for_input
from quothd.datadir.catalog import Catalog
from quothd.frontend.broker_info import BrokerInfo, counted
from quothd.frontend.child_processes import ChildProcesses
from quothd.frontend.dispatcher import Dispatcher
from quothd.frontend.endpoints import Sockets, bind_again
from quothd.keys.authentication import Authentication
from quothd.requests.pending_request import RefusedRequest, open_request
from quothd.service.log_events import note
from quothd.service.rules_supervisor import RULES_TOPIC
from quothd.threads.executor import Executor, Shared
from quothd.threads.outbox import Outbox
from quothd.threads.stall_guard import StallGuard, TakenOver
from quothd.threads.thread_pool import ThreadPool
from quothlog.storage.clock import Clock
from quothlog.storage.filesystem import PROCESS_SHORT, FileSystem
from quothwire.errors import QuothError, error
from quothwire.protocol.messages import Operation
from quothwire.service.sd_notify import Notifier
from quothwire.text.quantity import format_span

TURN_S = 0.001
"""Requests, events, work and queued replies get so long each, in turn: under a flood, a request waits for
each of them once."""
IDLE_S_MAX = 60.0
"""A poll counts milliseconds in 31 bits."""
NEEDS_MEMORY = frozenset(
    (Operation.PUBLISH, Operation.STAGE, Operation.FETCH, Operation.GROUP_FETCH, Operation.CREATE)
)
"""The operations that are refused while memory is short. Others may make some free."""
UNSYNCED_NAMED_MAX = 10
SHORT_S = 0.1
"""Pause after a lack of descriptors or memory that kept the loop from going on."""
LINGER_S = 0.5
"""At the end, for replies that their clients have not taken yet."""

UNSYNCED_HINT = (
    "what was acknowledged as synced is safe; what was acknowledged as written is, unless the power fails; "
    "the next start looks through these topics as after a crash"
)


class FrontEnd:
    """The loop of a broker, in a thread of its own; `stop` ends it once all requests are answered.

    sockets, outbox: it closes them, unless its constructor raises. audit: takes records of what clients do.
    bound: the addresses. announcer: announces the newest pointers. Once it has ended: failure:
    why, None if it was asked to and did what it had to. overrun: the topics whose threads are still at work.
    unsynced: those and others that the disk may not hold.
    """

    def __init__(
        self,
        sockets: Sockets,
        outbox: Outbox[Executor],
        config: Config,
        catalog: Catalog,
        notifier: Notifier,
        filesystem: FileSystem,
        clock: Clock,
        process_id: int,
        authentication: Authentication,
        audit: AuditTrail | None,
        memory: MemoryWatch,
    ) -> None:
        socket, publisher, monitor, self.bound, guard, poe = sockets
        self._access = Access(config, authentication.clients, audit)
        self.announcer = Announcer(publisher, config, clock, self._access.subscriptions_of)
        self._socket = socket
        self.failure: BaseException | None = None
        self.unsynced: QuothError | None = None
        self.overrun: QuothError | None = None
        self._thread = threading.Thread(target=self._serve, name="quoth-front-end", daemon=True)
        self._ended = threading.Event()
        self._notifier = notifier
        self._clock = clock
        self._authentication = authentication
        self._wanted: deque[tuple[Config, ClientTable | None, Future[None]]] = deque()
        self._counters: Counter[str] = Counter()
        self._outbox = outbox
        self._guard = StallGuard(self._serve, clock, filesystem.is_stalled)
        threads = ThreadPool("quoth-fsync"), ThreadPool("quoth-reader-0", "quoth-reader-1"), self._guard
        self._shared = Shared(config.dir, filesystem, clock, self._outbox, *threads)
        self._stop_at: float | None = None
        around = guard, memory, monitor, self._counters, self._access.meet, self._take_left
        reset = partial(bind_again, socket, self.bound.urls, clock)
        self._connections = table = ConnectionTable(config, *around, reset)
        authentication.revoked = table.end_users
        ways = partial(send_message, socket), table.of, table.unread.add, self._counters
        self._replies = ReplyQueue(*ways, clock.monotonic, is_encrypted=bool(config.server_key))
        about = self._shared, self._replies.send, self.announcer.news.__setitem__, self._access
        self._dispatcher = Dispatcher(config, catalog.folders, *about)
        has_rules = partial(self._dispatcher.registry.entries.__contains__, RULES_TOPIC)
        self._processes = ChildProcesses(config, self.bound.urls, has_rules, poe, authentication.own_keys)
        parts = self._processes, self.announcer, authentication, table
        self._info = BrokerInfo(self._dispatcher, *parts, self.bound, self._counters, process_id)

    # -- for other threads ----------------------------------------------------------------------------------

    def start(self) -> None:
        """Start all threads, once no endpoint lets an unknown key in. Raises why it could not."""
        try:
            self._authentication.test(self.bound.reachable())
            self._connections.start()
            self._shared.fsync_thread.start()
            self._shared.reader_pool.start()
            self._guard.start()
            self.announcer.start()
            self._thread.start()
        except BaseException:
            self._close()
            raise

    def join(self, timeout: float | None = None) -> None:
        """Wait until the front end has ended, if it was ever started."""
        if self._thread.ident is not None and self._ended.wait(timeout):
            self._thread.join()

    def configure(self, config: Config, clients: ClientTable | None) -> None:
        """Apply another configuration, and other clients. Any thread.

        Returns once that is so; a topic that is at something takes notice of it afterwards. Raises
        `Disconnected` ``closed`` if the front end has ended.
        """
        done: Future[None] = Future()
        self._wanted.append((config, clients, done))
        if self._ended.is_set():
            self._refuse_configurations()
        else:
            with contextlib.suppress(OSError):
                self._outbox.wake()
        done.result()

    def stop(self) -> None:
        """Refuse new requests, answer those in work, close every topic, end. Any thread."""
        self._stop_at = self._clock.monotonic() + self._dispatcher.config.stop_timeout
        with contextlib.suppress(OSError):
            self._outbox.wake()

    def close(self) -> None:
        """Close what is left once the thread has ended, unless a thread may still post."""
        if self.overrun is None:
            self._outbox.close()

    # -- the thread -----------------------------------------------------------------------------------------

    def _serve(self) -> None:
        """Be the front end until the broker ends, or until another thread takes over."""
        self._thread = threading.current_thread()
        self._thread.name = "quoth-front-end"
        self._guard.enter()
        try:
            self._loop_on()
        except TakenOver as taken_over:
            if taken_over.__context__ is not None:
                note("stalled_work_failed", taken_over.__context__)
        except BaseException as problem:
            note("front_end_failed", problem)
            self.failure = problem
            self._close()
        else:
            self._close()

    def _loop_on(self) -> None:
        """Loop until the broker ends; what a lack of descriptors or memory interrupts is begun again."""
        while True:
            try:
                return self._loop()
            except (OSError, zmq.ZMQError) as problem:
                if problem.errno not in PROCESS_SHORT:
                    raise
                note("front_end_short", problem)
                self._clock.sleep(SHORT_S)

    def _loop(self) -> None:
        sockets, announcer = [self._socket, self._connections.monitor.socket], self.announcer
        monotonic = self._clock.monotonic
        more = True  # the thread that was the front end before may have left something
        while not self._is_over():
            now = monotonic()
            self._info.tick(now)
            self._processes.tick(now)
            self._authentication.tick(now)
            self._configure()
            dues = (
                self._dispatcher.tick(now),
                self._replies.next_try(),
                self._connections.tick(now),
                self._notifier.tick(now, self._describe),
                now + min(self._dispatcher.config.check_interval, IDLE_S_MAX),
            )
            wait = min(dues) - now
            more = not self._outbox.leave() or more
            timeout = 0 if more else max(0, int(wait * 1_000) + 1)
            has_requests, has_reports, is_woken = wait_for_input(sockets, self._outbox.fd, timeout)
            self._outbox.attend(readable=is_woken)
            self._take_events(monotonic() + TURN_S)
            more = has_reports and self._connections.take_events(monotonic())
            more = (has_requests and self._receive()) or more
            if self._replies.kept:
                now = monotonic()
                self._replies.offer_again(now, now + TURN_S)
            more = self._work() or more
            if announcer.news:
                announcer.hand_over()

    def _take_events(self, until: float) -> None:
        now = self._clock.monotonic()
        for executor, events in self._outbox.take(until, self._clock.monotonic):
            self._dispatcher.take(executor, events, now)

    def _receive(self) -> bool:
        """Take the requests that are there; true if there may be more."""
        monotonic, connections, unread = self._clock.monotonic, self._connections, self._connections.unread
        until = (now := monotonic()) + TURN_S
        is_all = False
        while not is_all and monotonic() < until:
            messages, senders, is_all = receive_messages(self._socket, connections.users)
            self._counters["requests"] += len(messages)
            for row, frames in enumerate(messages):
                route = bytes(frames[0])
                if senders and row in senders and not connections.meet(route, senders[row], now):
                    continue
                if (connection := connections.routes.get(route)) is None or connection.is_gone:
                    continue
                if connection.queued and connection.room < self._dispatcher.in_work.reply_bytes_due:
                    unread.look(connection, now)
                self._take_request(frames, connection, now)
        return not is_all

    def _take_request(self, frames: list[Frame], connection: Connection, now: float) -> None:
        """Give a request to its topic, or answer it."""
        try:
            request = open_request(frames, connection)
        except RefusedRequest as problem:
            self._counters["malformed_requests"] += not problem.has_envelope
            self._replies.send(problem.frames, 0, connection)
            return
        connection.uncounted += request.size
        if connection.uncounted > COUNTED_BYTES:
            connection.count()
        try:
            if self._connections.watch.is_short and request.operation in NEEDS_MEMORY:
                raise error("busy", "the broker has little memory left")
            if self._access.clients is not None:
                self._access.admit(request)
            if request.topic:
                self._dispatcher.submit(request, now)
            else:
                answer = self._info.answer(request)
                self._replies.send(answer, connection.hold_large(answer), connection)
        except QuothError as problem:
            self._replies.send(self._info.refuse(request, problem), 0, connection)

    def _take_left(self, connection: Connection) -> None:
        """Drop what waits for a connection that has ended, and count it no more."""
        self._access.leave(connection)
        self._dispatcher.pending_fetches.take_left(connection)
        self._replies.drop(connection.route, connection)

    def _work(self) -> bool:
        """Let the topics handle what they were given; true if something may be left for the next turn."""
        until = self._clock.monotonic() + TURN_S
        while self._dispatcher.run(until):
            self._take_events(until)
            if self._clock.monotonic() >= until:
                return True
        return False

    def _configure(self) -> None:
        """Apply the configurations that have come."""
        while self._wanted:
            config, clients, done = self._wanted[0]
            former, clients = self._access.clients, self._authentication.replace(clients)
            self._dispatcher.configure(config, clients)
            if former is not None and clients is not None:
                self.announcer.end_connections(former.changed(clients))
            self._processes.configure(config)
            self.announcer.configure(config)
            self._wanted.popleft()  # only now: if this raises, the one who waits learns it at the end
            done.set_result(None)

    def _refuse_configurations(self) -> None:
        """Answer the configurations that came too late. Two threads may do this at the same time."""
        with contextlib.suppress(IndexError):
            while True:
                self._wanted.popleft()[2].set_exception(error("closed", "the broker has ended"))

    def _describe(self) -> str:
        return self._info.summary(is_stopping=self._stop_at is not None)

    # -- the end --------------------------------------------------------------------------------------------

    def _is_over(self) -> bool:
        """Once the broker is to stop: whether everything is answered and closed."""
        if self._stop_at is None:
            return False
        self._dispatcher.drain()
        now = self._clock.monotonic()
        if not self._dispatcher.scheduler.drained():
            return now > self._stop_at
        self._stop_at = min(self._stop_at, now + LINGER_S)
        return not self._replies.kept or now > self._stop_at

    def _close(self) -> None:
        """End what the front end has begun."""
        try:
            self._connections.close()
            self._socket.close(linger=int(LINGER_S * 1_000))
            self.announcer.stop()
            self._guard.stop()
            self._end_threads()
        finally:
            self._ended.set()
            self._refuse_configurations()

    def _end_threads(self) -> None:
        """End the other threads, and take note of what they have left undone.

        Those that have done all they had to may have been kept from the processor: they get their time.
        """
        monotonic = self._clock.monotonic
        allowed = self._dispatcher.config.stop_timeout
        until = monotonic() + allowed
        if self._stop_at is not None and self._dispatcher.scheduler.active:
            until = self._stop_at
        at_work, unsynced = self._dispatcher.end(until)
        if not at_work:  # else they may still need the shared threads
            self._shared.fsync_thread.stop(until, monotonic)
            self._shared.reader_pool.stop(until, monotonic)
        self._processes.stop()
        if at_work:
            text = f"{_named(at_work)} still at work after {format_span(allowed)}"
            self.unsynced = self.overrun = error("timed_out", text, UNSYNCED_HINT)
            self.failure = self.failure or self.overrun
        elif unsynced:
            text = f"writing to {_named(unsynced)} had failed"
            self.unsynced = error("storage_failed", text, UNSYNCED_HINT)


def _named(topics: Sequence[str]) -> str:
    """Return the number of topics and their names, as text."""
    names = ", ".join(map(repr, topics[:UNSYNCED_NAMED_MAX]))
    more = len(topics) - UNSYNCED_NAMED_MAX
    return f"{counted(len(topics))} ({names}{f' and {more} more' if more > 0 else ''})"
