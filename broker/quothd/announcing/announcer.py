"""Announces the newest pointers of topics, in a thread of its own, if there are subscribers.

The front end leaves the pointers in a dictionary, the newest of each topic, and the thread takes them from
it. What subscribers do takes time: libzmq removes 100,000 subscriptions in a third of a second. This thread
has that time; requests pass meanwhile, since libzmq holds no lock of Python's.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import zmq

from quothd.announcing.sockets import Publisher
from quothd.announcing.subscribers import Subscribers
from quothd.announcing.subscriptions import PrefixesFor, every_prefix
from quothd.config.config import Config
from quothd.service.allocator import give_back_memory
from quothd.service.log_events import note
from quothd.threads.wakeup import Wakeup
from quothlog.storage.clock import Clock
from quothwire.protocol import announcement

PAUSE_S = 0.001
"""Between two announcements of a topic: each turn takes time from the front end's thread."""
MESSAGES_MAX = 1_000
"""Messages of subscribers that are taken in a turn."""
FLOOD = 10_000
"""After so many messages of subscribers, freed memory is given back to the system..."""
GIVE_BACK_S = 5.0
"""...no earlier than so long after the last time."""
_READABLE = int(zmq.POLLIN)


class Announcer:
    """Announces in the thread "quoth-announcer".

    news: the newest pointers, by topic, that are to be announced; the front end sets them, whichever thread
    that is. is_wanted: there are subscribers.
    """

    def __init__(
        self, publisher: Publisher, config: Config, clock: Clock, prefixes_for: PrefixesFor = every_prefix
    ) -> None:
        """publisher: closed by `stop`. prefixes_for: says what a client gets for a prefix."""
        self.news: dict[str, int] = {}
        self.is_wanted = False
        self._publisher = publisher
        self._clock = clock
        self._subscribers = Subscribers(publisher, config, clock.monotonic, prefixes_for)
        self._announced = self._counted = 0
        self._local: set[bytes] = set()
        self._wakeup = Wakeup()
        self._revoked: deque[frozenset[str]] = deque()
        self._stops = self._has_failed = False
        self._give_back_at = 0.0
        self._flood = 0
        self._thread = threading.Thread(target=self._run, name="quoth-announcer", daemon=True)

    # -- for the front end ----------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the thread. Raises why it could not."""
        self._thread.start()

    def hand_over(self) -> None:
        """Let the thread announce the news, or drop them if there are no subscribers."""
        if self.is_wanted:
            self._wakeup.notify()
        else:
            self.news.clear()

    def stop(self) -> None:
        """End the thread, and close the sockets. A second call does nothing."""
        if self._stops:
            return
        self._stops = True
        if self._thread.ident is None:
            self._publisher.close()
        else:
            self._wakeup.wake()
            self._thread.join()
        self._wakeup.close()

    # -- for any thread -------------------------------------------------------------------------------------

    def configure(self, config: Config) -> None:
        """Apply other limits to the subscriptions that come from now on."""
        self._subscribers.configure(config)

    def end_connections(self, user_ids: Iterable[str]) -> None:
        """End the connections of clients, by their public keys, since they have other rights now.

        A connection that has subscribed to nothing stays: its first subscription asks for its rights.
        """
        self._revoked.append(frozenset(user_ids))
        self._wakeup.notify()

    @property
    def is_running(self) -> bool:
        """True unless the thread has failed: then nothing is announced before the broker is started again."""
        return not self._has_failed

    def counters(self) -> dict[str, int]:
        """Return what is counted, by name, and whether the thread runs.

        A subscription counts once publishes are announced to it, and until they no longer are.
        """
        return {
            "announcer_running": int(self.is_running),
            "announcements": self._announced,
            "subscriptions": self._counted,
            "subscribers_closed": self._subscribers.closed,
        }

    # -- the thread -----------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while not self._stops:
                self._turn()
        except BaseException as problem:
            self._has_failed = True
            note("announcer_failed", problem)
        finally:
            self.is_wanted = False
            self._publisher.close()

    def _turn(self) -> None:
        """Wait until there is anything to do, then do it."""
        is_readable = self._wait()
        subscribers = self._subscribers
        subscribers.take_reports()
        taken = subscribers.take(MESSAGES_MAX)
        if is_readable:
            self._take_local()
        while self._revoked:
            subscribers.end_users(self._revoked.popleft())
        count = subscribers.subscriptions.count + len(self._local)
        self.is_wanted = bool(count)
        self._counted = count
        announced = self._announce() if self.is_wanted else 0
        self._announced += announced
        self._give_back(taken)
        if announced:
            self._clock.sleep(PAUSE_S)

    def _wait(self) -> bool:
        """Wait until there is anything to do; true if a client in this process has a message."""
        wakeup, (remote, local, monitor) = self._wakeup, self._publisher
        wakeup.arm()
        watched: list[Any] = [remote, local, monitor.socket, wakeup.fd]
        found = [one for one, _ in zmq.zmq_poll([(one, _READABLE) for one in watched], self._timeout())]
        wakeup.attend(readable=wakeup.fd in found)
        return local in found

    def _timeout(self) -> int:
        """Return the milliseconds to wait, -1 for any time."""
        if (self.news and self.is_wanted) or self._revoked or self._stops:
            return 0
        if self._flood < FLOOD:
            return -1
        return max(0, int((self._give_back_at - self._clock.monotonic()) * 1_000) + 1)

    def _take_local(self) -> None:
        """Take the subscriptions of clients in this process."""
        with suppress(zmq.Again):
            for _ in range(MESSAGES_MAX):
                message = self._publisher.local.recv(zmq.NOBLOCK)
                if message[:1] == b"\1":
                    self._local.add(message[1:])
                elif message[:1] == b"\0":
                    self._local.discard(message[1:])

    def _announce(self) -> int:
        """Send the news; returns how many. libzmq drops what a subscriber does not take."""
        news, (remote, local, _) = self.news, self._publisher
        count = 0
        for topic in list(news):
            newest = news.pop(topic, None)
            if newest is None:  # the front end has seen no subscriber
                break
            frame = announcement.encode(topic, newest)
            if self._subscribers.subscriptions.count:
                remote.send(frame, zmq.NOBLOCK)
            if self._local:
                local.send(frame, zmq.NOBLOCK)
            count += 1
        return count

    def _give_back(self, taken: int) -> None:
        """Give memory back once a flood of messages is over."""
        self._flood += taken
        now = self._clock.monotonic()
        if self._flood >= FLOOD and not taken and now >= self._give_back_at:
            give_back_memory()
            self._flood = 0
            self._give_back_at = now + GIVE_BACK_S
