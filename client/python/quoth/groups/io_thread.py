"""The thread of one member: it owns the connection, sends what is leaving, and takes the answers."""

from __future__ import annotations

import os
import threading
import time
from weakref import finalize

import zmq

from quoth.connection.channel import LinkRequests
from quoth.connection.connection import Context, Link, PipeWakeup, closed
from quoth.connection.endpoint import Endpoint
from quoth.core.request_state import RequestState
from quoth.groups.member import GroupMember
from quothwire.errors import QuothError, error

TURN_S = 1.0
"""The longest wait for something to happen."""


class MemberThread:
    """Drives a member until it is stopped. Any thread may call its methods."""

    def __init__(self, context: Context, endpoint: Endpoint, member: GroupMember) -> None:
        self._context = context
        self._endpoint = endpoint
        self._member = member
        self._pid = os.getpid()
        self._correlation = int.from_bytes(os.urandom(4))
        self._wakeup = PipeWakeup()
        self._is_woken = False
        self._is_stopping = False
        finalize(self, self._wakeup.close).atexit = False  # not before: a message may still wake it
        self._requests = _MemberRequests(self._link())
        member.queue.wake = self.wake
        name = f"quoth-group-{member.options.topic}"
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    @property
    def is_running(self) -> bool:
        """True in the process that made it, until it is stopped."""
        return not self._is_stopping and os.getpid() == self._pid

    def check_process(self) -> None:
        """Refuse a forked child: it has no thread."""
        if os.getpid() != self._pid:
            raise error("closed", "a member of a group stays with the process that made it", "make one here")

    def wake(self) -> None:
        """Let the thread look for what is leaving."""
        if not self._is_woken:
            self._is_woken = True
            self._wakeup.wake()

    def stop(self) -> None:
        """Let the thread end."""
        self._is_stopping = True
        if os.getpid() == self._pid:
            self._wakeup.wake()

    def join(self) -> None:
        """Wait until the thread has ended."""
        self._thread.join()

    # -- the thread -------------------------------------------------------------------------------------

    def _run(self) -> None:
        problem = error("closed", "the member of the group was closed")
        try:
            while not self._is_stopping:
                self._turn()
        except zmq.ContextTerminated:
            problem = closed()
        except BaseException as defect:
            problem = error("internal", f"the thread of a member ended: {defect!r}", "please report this")
        finally:
            self._requests.link.close()
        self._member.end(problem)

    def _turn(self) -> None:
        member, requests = self._member, self._requests
        now = time.monotonic()
        for request in member.leaving(now):
            self._correlation += 1
            try:
                request.begin(self._correlation, now, member.timing.resend)
                requests.send(request)
            except QuothError as problem:
                member.take(request, problem, now)
        member.note_sent()
        link, was_connected = requests.link, requests.link.connected
        found = link.wait(min(requests.due, member.due, now + TURN_S) - now, now)
        self._wakeup.clear()
        self._is_woken = False
        now = time.monotonic()  # before the answers are taken: then none comes too late
        is_new = bool(link.connected and not was_connected)
        for request, outcome in requests.take(now, found=is_new or link.refused is not None):
            member.take(request, outcome, now)
        if was_connected and (found or not link.connected):
            requests.link = self._link()
            link.close()

    def _link(self) -> Link:
        link = Link(self._context, self._endpoint)
        link.also_wait_for(self._wakeup.fd)
        return link


class _MemberRequests(LinkRequests):
    """The requests of a member. None is left in the queue of a link without a connection.

    From there it would reach a later broker beside the copy that is sent then, and of two copies of a fetch
    one has its records leased in vain. For the same reason a link that has lost its connection is replaced.
    """

    def send(self, request: RequestState) -> None:
        """Send a request, once the broker is there."""
        if self.link.connected:
            super().send(request)
        else:
            self.link.redial()
            self.asked[request.correlation] = request
            self.due = min(self.due, request.due)
