"""Plays one session: step by step, what a client sends is compared and answered."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

import zmq

from player import batches
from player.broker import ScriptedBroker
from player.deviation import Deviation, TooLate
from player.driver import Driver
from player.expected import Bindings, compare_request, compare_results
from player.frames import ERROR, OK, OPERATIONS, Request, decode_request, encode_answer

SESSION_S = 15.0
"""Seconds for a whole session."""
REQUEST_S = 1.0
"""Seconds in which a request has to come although the driver has written its result."""
TIMEOUT_MS, RESEND_MS = 10_000, 60_000
ANSWERS: dict[str, dict[str, Any]] = {
    "hello": {
        "server": "quoth 1.0.0",
        "versions": [1],
        "operations": list(OPERATIONS),
        "limits": {"frame_bytes_max": 17 * 2**20, "fetch_bytes_max": 4 * 2**20},
        "announcements": "",
        "announcements_port": 0,
    },
    "ping": {"time": 1_767_323_045_000_000},
}
"""The answers to requests that a client may send at any time."""
WIDE = frozenset(
    {"active", "after", "batches", "bounds", "bytes", "count", "counters", "damaged", "end", "first"}
    | {"first_ordinal", "gone", "last", "limits", "log", "newest", "newest_version", "next", "parts", "pid"}
    | {"records", "segments", "time", "topics", "until", "waits"}
    | {"cursor", "dead", "generation", "in_flight", "lag", "late", "lease_ms", "leases", "lost", "oldest"}
    | {"pending", "ranges", "redelivered"}
)
"""Fields of replies that are numbers, in quotes in a session. `after` is never a name in a reply."""


class Unsupported(Exception):
    """The client has not got what the session needs, as its driver says."""


class Play:
    """One session with one driver. Belongs to one thread. events: what was sent and received, for people."""

    def __init__(self, session: dict[str, Any], driver: Driver, broker: ScriptedBroker) -> None:
        self.events: list[str] = []
        self._session = session
        self._driver = driver
        self._broker = broker
        self._bindings = Bindings()
        self._requests: dict[str, Request] = {}
        """By the names that steps give them."""
        self._standing: dict[str, dict[str, Any]] = {**ANSWERS, **session.get("standing", {})}
        """The answers to operations that the client may send at any time."""
        self._refused: list[tuple[Request, dict[str, Any] | None]] = []
        """Requests that get an error whenever they are sent; none where they get no answer."""
        self._result: dict[str, Any] | None = None
        self._deadline = time.monotonic() + SESSION_S
        self._steps: dict[str, Callable[[dict[str, Any]], None]] = {
            "expect": self._expect,
            "reply": self._reply,
            "error": self._error,
            "ignore": self._ignore,
            "frames": self._frames,
            "drop": self._drop,
            "pause": lambda step: time.sleep(step["pause"] / 1_000),
            "quiet": self._quiet,
        }

    def play(self) -> None:
        """Play the session to its end. Raises `Deviation`, or `Unsupported`."""
        given = {"timeout_ms": TIMEOUT_MS, "resend_ms": RESEND_MS}
        job = given | {name: self._session[name] for name in (*given, "calls") if name in self._session}
        self._driver.begin({"session": self._session["name"], "url": self._broker.url, **job})
        for step in self._session["script"]:
            self._steps[next(iter(step))](step)
        request = self._next(self._deadline, ends_with_result=True)
        while request is not None:
            if request.operation != "fetch" and not self._is_copy(request):  # it may fetch ahead
                raise Deviation(f"the client sends {request}, where nothing is expected")
            request = self._next(self._deadline, ends_with_result=True)
        if self._result is None:
            raise Deviation(f"the driver has written no result within {SESSION_S:g} s")
        compare_results(self._session["results"], self._results(), self._bindings)

    @property
    def has_ended(self) -> bool:
        """True if the driver has written its result, and waits for another session."""
        return self._result is not None

    def _results(self) -> Any:
        assert self._result is not None
        self._note("result", self._result)
        if self._result.get("session") != self._session["name"]:
            raise Deviation(f"the driver has written the result of session {self._result.get('session')!r}")
        return self._result.get("results")

    # -- steps --------------------------------------------------------------------------------------------

    def _expect(self, step: dict[str, Any]) -> None:
        while (request := self._next(self._deadline)) is not None:
            try:
                compare_request(step, request, self._requests, self._bindings)
            except Deviation:
                if self._is_copy(request):
                    continue
                raise
            self._requests[step.get("as", step["expect"])] = request
            return
        is_over = self._result is not None and any("timeout_ms" in call for call in self._session["calls"])
        problem = f"the client does not send {step['expect']} {step.get('topic', '')}".rstrip()
        raise TooLate(problem) if is_over else Deviation(problem)

    def _reply(self, step: dict[str, Any]) -> None:
        request = self._requests[step["reply"]]
        arguments = numbered(step.get("arguments", {}))
        log = arguments.get("log", 0)
        payload = b"".join(batches.encode(one, log) for one in step.get("batches", ())) or None
        self._answer(request, OK, arguments, payload)

    def _error(self, step: dict[str, Any]) -> None:
        request = self._requests[step["error"]]
        carried = {name: step.get(name, "") for name in ("code", "text", "hint")} | step.get("more", {})
        if step.get("always"):
            self._refused.append((request, carried))
        self._answer(request, ERROR, carried, None)

    def _ignore(self, step: dict[str, Any]) -> None:
        self._refused.append((self._requests[step["ignore"]], None))

    def _frames(self, step: dict[str, Any]) -> None:
        request = self._requests[step["to"]]
        correlation = request.correlation.to_bytes(8, "little").hex()
        frames = [bytes.fromhex(frame.replace("{correlation}", correlation)) for frame in step["frames"]]
        self._note("sends", step["frames"])
        self._broker.send([*request.envelope, *frames])

    def _drop(self, step: dict[str, Any]) -> None:
        """Go away, for some milliseconds, or for good if there is no number."""
        self._note("the broker", "goes away")
        self._broker.go()
        if step["drop"] is not None:
            time.sleep(step["drop"] / 1_000)
            self._broker.come_back()
            self._note("the broker", "is back")

    def _quiet(self, step: dict[str, Any]) -> None:
        request = self._next(time.monotonic() + step["quiet"] / 1_000)
        if request is not None:
            raise Deviation(f"the client sends {request}, where it has to send nothing")

    # -- what comes ---------------------------------------------------------------------------------------

    def _next(self, until: float, *, ends_with_result: bool = False) -> Request | None:
        """Return the next request that is not answered here, None if there is none in time.

        ends_with_result: also None once the driver has written its result and nothing more is there. Without
        it a request may come a little later than the result, by another connection.
        """
        while True:
            if self._result is not None:
                until = min(until, 0.0 if ends_with_result else time.monotonic() + REQUEST_S)
            ready = self._poll(max(0.0, until - time.monotonic()))
            if self._broker.socket in ready:
                request = self._received()
                if request is not None:
                    return request
            elif ready:
                self._take_result()
            else:
                return None

    def _poll(self, seconds: float) -> dict[Any, int]:
        """Wait for a request, or for the result."""
        poller = zmq.Poller()
        if self._broker.socket is not None:
            poller.register(self._broker.socket, zmq.POLLIN)
        if self._result is None:
            poller.register(self._driver.fd, zmq.POLLIN)
        return dict(poller.poll(math.ceil(seconds * 1_000)))

    def _take_result(self) -> None:
        self._result = self._driver.read()
        if self._result is not None and "unsupported" in self._result:
            raise Unsupported(str(self._result["unsupported"]))

    def _received(self) -> Request | None:
        """Receive a request. Returns None for one that is answered here."""
        request = decode_request(self._broker.receive())
        self._note("receives", request)
        for refused, carried in self._refused:
            if request.repeats(refused):
                if carried is not None:
                    self._answer(request, ERROR, carried, None)
                return None
        if request.operation in self._standing and not self._is_expected(request.operation):
            self._answer(request, OK, numbered(self._standing[request.operation]), None)
            return None
        return request

    def _is_expected(self, operation: str) -> bool:
        return any(step.get("expect") == operation for step in self._session["script"])

    def _is_copy(self, request: Request) -> bool:
        """True for another copy of an earlier request, which was on its way when something was lost."""
        loses = "resend_ms" in self._session or any("drop" in step for step in self._session["script"])
        return loses and any(request.repeats(one) for one in self._requests.values())

    def _answer(
        self, request: Request, status: int, arguments: dict[str, Any], payload: bytes | None
    ) -> None:
        size = f" and {len(payload)} bytes" if payload is not None else ""
        self._note("answers", f"{request.operation} {'ok' if status == OK else 'error'} {arguments}{size}")
        self._broker.send(encode_answer(request, status, arguments, payload))

    def _note(self, what: str, value: object) -> None:
        self.events.append(f"{what}: {value}")


def numbered(fields: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a reply with numbers where a session has them in quotes."""
    return {name: _number(value) if name in WIDE else value for name, value in fields.items()}


def _number(value: Any) -> Any:
    if isinstance(value, list):
        return [_number(one) for one in value]
    if isinstance(value, dict):
        return {name: _number(one) for name, one in value.items()}
    return int(value) if isinstance(value, str) else value
