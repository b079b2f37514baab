"""The front end: the thread that owns the sockets.

ROUTER takes requests and gives replies, PUB announces. It reads of a request what it needs to hand it on, the
operation and the topic; a request that does not even have those is answered here, like everything that needs
no topic. No request of one client can hold up another's: whatever takes time is done elsewhere.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections import Counter, deque
from collections.abc import Sequence
from concurrent.futures import Future
from pathlib import Path

import zmq

from quothd.caller import Caller, FastCaller, SimpleCaller
from quothd.catalog import Catalog
from quothd.config import Config
from quothd.dispatcher import Dispatcher
from quothd.endpoints import Bound, bind_pair
from quothd.job import Job
from quothd.logbook import note
from quothd.notify import Notifier
from quothd.outbox import Outbox
from quothd.replies import FRAME_BYTES, QUEUED_MAX, Replies
from quothd.router import Frame, Router
from quothd.scrubber import Scrubber
from quothd.stall_guard import StallGuard, TakenOver
from quothlog.producers import RESULTS_MAX
from quothwire import announcement, batch, codec, simple
from quothwire.codec import Frames
from quothwire.dialogue import WITHOUT_TOPIC
from quothwire.errors import QuothError, error
from quothwire.message import (
    FETCH_BYTES_MAX,
    WAIT_MS_MAX,
    GetStatus,
    ListTopics,
    Operation,
    Pong,
    Status,
    Topics,
    Welcome,
)
from quothwire.quantity import format_span
from quothwire.topic import TOPIC_BYTES_MAX, check_topic, decode_topic
from quothwire.version import VERSION

TURN_S = 0.005
"""Requests, answers and what is kept of them have so long each, then the next is looked at: a reply of 20,000
frames takes longer than a thousand small ones."""
IDLE_S_MAX = 60.0
"""A poll counts milliseconds in 31 bits."""
HANDSHAKE_MS = 3_000
UNSYNCED_NAMED_MAX = 10
LINGER_S = 0.5
"""At the end, for replies that their clients have not taken yet."""
ENVELOPE_FRAMES_MAX = 8
ENVELOPE_BYTES_MAX = 256

UNSYNCED_HINT = (
    "what was acknowledged as synced is safe; what was acknowledged as written is, unless the power fails; "
    "the next start looks through these topics as after a crash"
)

SERVER = f"quothd {VERSION}"


class FrontEnd:
    """The broker's loop in a thread of its own; `stop` drains and ends it.

    Once it has ended: failure: why, None if it was asked to and did what it had to. overrun: which topics are
    still at work, so that their threads go on. unsynced: those and others that the disk may not hold.
    """

    def __init__(
        self,
        context: zmq.Context[zmq.Socket[bytes]],
        config: Config,
        catalog: Catalog,
        inproc: str,
        notifier: Notifier,
    ) -> None:
        self._thread = threading.Thread(target=self._run, name="quoth-front-end", daemon=True)
        self._ready: Future[Bound] = Future()
        self._ended = threading.Event()
        self.failure: BaseException | None = None
        self.unsynced: QuothError | None = None
        self.overrun: QuothError | None = None
        self._context = context
        self._config = config
        self._inproc = inproc
        self._notifier = notifier
        self._wanted: deque[tuple[Config, Future[None]]] = deque()
        self._began = time.monotonic()
        self._outbox = Outbox()
        self._news: dict[str, int] = {}
        self._counters: Counter[str] = Counter()
        self._guard = StallGuard(self._serve)
        self._dispatcher = Dispatcher(
            config.dir,
            config,
            catalog.folders,
            self._outbox,
            self._send,
            self._news.__setitem__,
            self._guard,
        )
        self._scrubber = Scrubber(config)
        self._stop_at: float | None = None
        self._router: Router
        self._announcer: zmq.Socket[bytes]
        self._replies: Replies
        self._bound: Bound

    # -- the thread -------------------------------------------------------------------------------------

    def start(self) -> Bound:
        """Start the thread; returns what it bound, or raises why it could not."""
        self._thread.start()
        return self._ready.result()

    def join(self, timeout: float | None = None) -> None:
        """Wait until whoever has the front has ended, if there ever was one."""
        if self._thread.ident is not None and self._ended.wait(timeout):
            self._thread.join()

    def _run(self) -> None:
        try:
            router, self._announcer = self._make_sockets()
            self._router = Router(router)
            self._replies = Replies(self._router, self._counters)
        except BaseException as problem:
            self._ready.set_exception(problem)
            self._ended.set()
            return
        try:
            self._dispatcher.start()
        except BaseException as problem:
            self._close(problem)
            return
        self._guard.start()
        self._ready.set_result(self._bound)
        self._serve()

    def _serve(self) -> None:
        """Have the front until the broker ends, or until somebody else has it."""
        self._thread = threading.current_thread()
        self._thread.name = "quoth-front-end"
        try:
            self._loop()
        except TakenOver as taken_over:
            if taken_over.__context__ is not None:
                note("stalled_work_failed", taken_over.__context__)
        except BaseException as problem:
            self._close(problem)
        else:
            self._close(None)

    def _close(self, problem: BaseException | None) -> None:
        """End what the front end has begun."""
        try:
            if problem is not None:
                self._fail(problem)
            self._router.socket.close(linger=int(LINGER_S * 1_000))
            self._announcer.close(linger=0)
            self._guard.stop()
            self._end()
        finally:
            self._ended.set()
            self._refuse_configurations()

    def _fail(self, problem: BaseException) -> None:
        """Tell whoever waits for the start; once it has succeeded, whoever asks for `failure`."""
        if self._ready.done():
            note("front_end_failed", problem)
            self.failure = problem
        else:
            self._ready.set_exception(problem)

    def _end(self) -> None:
        """End the other threads, and take note of what they have left undone.

        Those that have done all they had to may have been kept from the processor: they get their time.
        """
        until = time.monotonic() + self._config.stop_timeout
        if self._stop_at is not None and self._dispatcher.active:
            until = self._stop_at
        at_work, unsynced = self._dispatcher.stop(until)
        self._scrubber.stop()
        if at_work:
            text = f"{_named(at_work)} still at work after {format_span(self._config.stop_timeout)}"
            self.unsynced = self.overrun = error("timed_out", text, UNSYNCED_HINT)
            self.failure = self.failure or self.overrun
        elif unsynced:
            text = f"writing to {_named(unsynced)} had failed"
            self.unsynced = error("storage_failed", text, UNSYNCED_HINT)

    def configure(self, config: Config) -> None:
        """Let every part go by another configuration. Any thread.

        Returns once that is so; a worker that is at something takes notice of it afterwards. Raises
        `Disconnected` ``closed`` if the front end has ended.
        """
        done: Future[None] = Future()
        self._wanted.append((config, done))
        if self._ended.is_set():
            self._refuse_configurations()
        else:
            with contextlib.suppress(OSError):
                self._outbox.wake()
        done.result()

    def stop(self) -> None:
        """Take no more requests, answer those that are in work, put every topic to sleep, end. Any thread."""
        self._stop_at = time.monotonic() + self._config.stop_timeout
        with contextlib.suppress(OSError):
            self._outbox.wake()

    def close(self) -> None:
        """Close what is left once the thread has ended, unless somebody may still post."""
        if self.overrun is None:
            self._outbox.close()

    def _make_sockets(self) -> tuple[zmq.Socket[bytes], zmq.Socket[bytes]]:
        router, announcer = self._context.socket(zmq.ROUTER), self._context.socket(zmq.PUB)
        try:
            for one in (router, announcer):
                one.set(zmq.LINGER, 0)
                one.set(zmq.SNDHWM, QUEUED_MAX)
                one.set(zmq.MAXMSGSIZE, self._config.frame_bytes_max)
                one.set(zmq.HANDSHAKE_IVL, HANDSHAKE_MS)
                one.set(zmq.TCP_KEEPALIVE, 1)
            router.set(zmq.ROUTER_MANDATORY, 1)
            self._bound = bind_pair(router, announcer, self._config, self._inproc)
        except BaseException:
            router.close()
            announcer.close()
            raise
        return router, announcer

    def _loop(self) -> None:
        poller = zmq.Poller()
        poller.register(self._router.socket, zmq.POLLIN)
        poller.register(self._outbox.fd, zmq.POLLIN)
        more = True  # whoever had the front before may have left something
        while not self._is_over():
            now = time.monotonic()
            self._scrubber.tick(now)
            if self._wanted:
                self._configure()
            dues = (
                self._dispatcher.tick(now),
                self._replies.next_try(),
                self._notifier.tick(now, self._describe),
                now + min(self._config.check_interval, IDLE_S_MAX),
            )
            wait = min(due for due in dues if due is not None) - now
            more = not self._outbox.leave() or more
            ready = dict(poller.poll(0 if more else max(0, int(wait * 1_000) + 1)))
            self._outbox.attend(rung=self._outbox.fd in ready)
            self._take_events(time.monotonic() + TURN_S)
            more = self._router.socket in ready and self._receive()
            if self._replies:
                now = time.monotonic()
                self._replies.offer_again(now, now + TURN_S)
            more = self._work() or more
            self._announce_news()

    def _configure(self) -> None:
        """Go by the configurations that have come meanwhile."""
        while self._wanted:
            config, done = self._wanted[0]
            self._config = config
            self._dispatcher.configure(config)
            self._scrubber.configure(config)
            self._wanted.popleft()  # only now: if this breaks down, whoever waits is told at the end
            done.set_result(None)

    def _refuse_configurations(self) -> None:
        """Tell whoever has brought one too late. Two threads may be at this."""
        with contextlib.suppress(IndexError):
            while True:
                self._wanted.popleft()[1].set_exception(error("closed", "the broker has ended"))

    def _describe(self) -> str:
        """What the broker is at, in a line."""
        dispatcher = self._dispatcher
        if self._stop_at is not None:
            return f"stopping, {_counted(dispatcher.active)} still awake"
        parts = [f"serving {_counted(dispatcher.topics)} at {self._bound.urls[0]}"]
        if dispatcher.unopened:
            parts.append(f"opening {dispatcher.topics - dispatcher.unopened} of {dispatcher.topics}")
        if dispatcher.is_disk_low(time.monotonic()):
            parts.append("disk low: publishes are refused")
        return ", ".join(parts)

    def _take_events(self, until: float) -> None:
        now = time.monotonic()
        for event in self._outbox.take(until):
            self._dispatcher.take(event, now)

    def _work(self) -> bool:
        """Have done, or do, what has been asked for; True if something may be left for the next turn."""
        until = time.monotonic() + TURN_S
        while self._dispatcher.hand_over(until):
            self._take_events(until)
            if time.monotonic() >= until:
                return True
        return False

    def _is_over(self) -> bool:
        """Once the broker is to stop: has everything been answered and put to sleep?"""
        if self._stop_at is None:
            return False
        self._dispatcher.drain()
        now = time.monotonic()
        if not self._dispatcher.drained():
            return now > self._stop_at
        self._stop_at = min(self._stop_at, now + LINGER_S)
        return not self._replies or now > self._stop_at

    # -- requests ---------------------------------------------------------------------------------------

    def _receive(self) -> bool:
        """Take the requests that are there; True if there may be more."""
        now = time.monotonic()
        until = now + TURN_S
        while time.monotonic() < until:
            frames = self._router.receive()
            if frames is None:
                return False
            self._counters["requests"] += 1
            self._route(frames, now)
        return True

    def _route(self, frames: list[Frame], now: float) -> None:
        """Find out who asks for what, and hand it on."""
        route, body = _split_envelope(frames)
        if route is None:
            self._counters["unanswerable"] += 1
            self._send([bytes(frames[0]), b"", *simple.encode_error(_NO_DELIMITER)])
            return
        try:
            caller, topic = self._open_request(route, body)
        except QuothError as problem:
            self._refuse(route, body, problem)
            return
        size = sum(map(len, body)) + FRAME_BYTES * len(body)
        try:
            if caller.operation in WITHOUT_TOPIC:
                self._send(self._answer_here(caller))
            else:
                self._dispatcher.submit(Job(caller, caller.operation, decode_topic(topic), size), now)
        except QuothError as problem:
            self._send(caller.refuse(problem))

    def _open_request(self, route: list[bytes], body: list[Frame]) -> tuple[Caller, bytes]:
        if codec.is_fast(body):
            call = codec.decode_call(body)
            return FastCaller(route, call), call.topic
        texts = list(map(bytes, body))
        operation = simple.operation_of(texts)
        return SimpleCaller(route, texts, operation), texts[1] if len(texts) > 1 else b""

    def _refuse(self, route: list[bytes], body: list[Frame], problem: QuothError) -> None:
        """Answer what could not even be read, in the protocol that it came closest to."""
        if codec.is_fast(body):
            operation = body[0][3] if len(body[0]) > 3 else 0
            self._send(route + codec.encode_error(operation, codec.correlation_of(body), problem))
        else:
            self._send(route + simple.encode_error(problem))

    def _answer_here(self, caller: Caller) -> Frames:
        """Answer what is asked of the broker as a whole."""
        request = caller.request()
        match request:
            case ListTopics(after=after) | GetStatus(after=after) if after:
                check_topic(after)
        match request:
            case ListTopics(after=after, limit=limit):
                return caller.reply(Topics(self._dispatcher.names(after, limit)))
            case GetStatus():
                return caller.reply(self._status(request))
            case _ if caller.operation is Operation.HELLO:
                return caller.reply(self._welcome())
            case _:
                return caller.reply(Pong(time.time_ns() // 1_000))

    def _welcome(self) -> Welcome:
        limits = {
            "batch_bytes_max": batch.BATCH_BYTES_MAX,
            "batch_records_max": batch.BATCH_RECORDS_MAX,
            "frame_bytes_max": self._config.frame_bytes_max,
            "topic_bytes_max": TOPIC_BYTES_MAX,
            "wait_ms_max": WAIT_MS_MAX,
            "fetch_bytes_max": FETCH_BYTES_MAX,
            "results_max": RESULTS_MAX,
            "durability": self._config.durability,
            "sync_interval": self._config.sync_interval,
        }
        operations = [operation.name.lower() for operation in Operation]
        bound = self._bound
        where = bound.announcements, bound.announcements_port
        return Welcome(SERVER, [codec.VERSION], operations, limits, *where)

    def _status(self, request: GetStatus) -> Status:
        dispatcher = self._dispatcher
        return Status(
            server=SERVER,
            pid=os.getpid(),
            directory=str(Path(self._config.dir).resolve()),
            uptime=time.monotonic() - self._began,
            topics=dispatcher.topics,
            active=dispatcher.active,
            waits=len(dispatcher.waits),
            counters={
                **self._counters,
                "syncs": dispatcher.syncs,
                "threads": threading.active_count(),
                "relieved": self._guard.relieved,
                "unopened": dispatcher.unopened,
                **dispatcher.totals(),
                **self._scrubber.counters(),
            },
            states=dispatcher.states(request.after, request.limit),
        )

    # -- replies ----------------------------------------------------------------------------------------

    def _send(self, frames: Frames) -> None:
        self._replies.send(frames, time.monotonic())

    def _announce_news(self) -> None:
        if self._news:
            for topic, newest in self._news.items():
                self._announcer.send(announcement.encode(topic, newest), zmq.NOBLOCK)
            self._counters["announcements"] += len(self._news)
            self._news.clear()


_NO_DELIMITER = error(
    "bad_request",
    "the request does not begin behind an empty frame",
    "a DEALER has to send an empty frame before the request, a REQ does it by itself; "
    f"at most {ENVELOPE_FRAMES_MAX} frames of {ENVELOPE_BYTES_MAX} bytes may stand before it",
)


def _split_envelope(frames: list[Frame]) -> tuple[list[bytes] | None, list[Frame]]:
    """The route up to and with the empty delimiter, and what follows it. No delimiter, no route."""
    if len(frames) > 1 and not frames[1]:
        return [bytes(frames[0]), b""], frames[2:]
    for at, frame in enumerate(frames[: ENVELOPE_FRAMES_MAX + 2]):  # the ROUTER's id, theirs, the delimiter
        if not frame:
            return list(map(bytes, frames[: at + 1])), frames[at + 1 :]
        if len(frame) > ENVELOPE_BYTES_MAX:
            break
    return None, []


def _counted(topics: int) -> str:
    return f"{topics} topic{'s' * (topics != 1)}"


def _named(topics: Sequence[str]) -> str:
    """How many topics, and which."""
    names = ", ".join(map(repr, topics[:UNSYNCED_NAMED_MAX]))
    more = len(topics) - UNSYNCED_NAMED_MAX
    return f"{_counted(len(topics))} ({names}{f' and {more} more' if more > 0 else ''})"
