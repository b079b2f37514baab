"""The events that `quoth-web` logs, with their levels and meanings.

Fields are names, numbers and texts of errors, never tokens, keys or the content of records.
"""

from __future__ import annotations

import logging
from threading import Timer
from typing import Any

from quothwire.service.log_event import LogEvent, line_of
from quothwire.service.log_writer import LoggingProgram

INFO, WARNING, ERROR = logging.INFO, logging.WARNING, logging.ERROR

LOGGER = "quothweb"

log = logging.getLogger(LOGGER)

EVENTS: dict[str, LogEvent] = {
    "broker": LogEvent(INFO, "the broker that is asked", "asking {url}"),
    "tokens_required": LogEvent(
        INFO, "requests need tokens, and so many are known", "requests need tokens; {tokens} known, in {file}"
    ),
    "ready": LogEvent(INFO, "the server answers requests", "ready {url}"),
    "stopping": LogEvent(INFO, "a signal or a failure ends the server", "stopping"),
    "stopped": LogEvent(INFO, "an orderly end", "stopped"),
    "refused": LogEvent(ERROR, "the server cannot start", "{problem}"),
    "failed": LogEvent(ERROR, "the server has failed while serving"),
    "no_tokens": LogEvent(WARNING, "the tokens file has no token: every request is refused"),
    "tokens_changed": LogEvent(INFO, "SIGHUP: tokens were added, removed, or got another key"),
    "reloaded": LogEvent(INFO, "SIGHUP: the file was read again, these keys have changed"),
    "reload_refused": LogEvent(ERROR, "SIGHUP: a file is wrong, and nothing has changed"),
    "restart_needed": LogEvent(WARNING, "SIGHUP: these keys have changed in the file and need a restart"),
    "key_refused": LogEvent(ERROR, "the key file of a token cannot be used"),
    "token_denied": LogEvent(WARNING, "a request had a token that is not known"),
    "request": LogEvent(INFO, "a request was answered"),
    "request_failed": LogEvent(ERROR, "a request met a defect of the server"),
    "broker_unreachable": LogEvent(WARNING, "the broker does not answer; pages show its last state"),
    "metrics_refused": LogEvent(WARNING, "the broker answers, but tells no metrics: an old one, or no right"),
    "broker_answers": LogEvent(INFO, "the broker answers again"),
    "message": LogEvent(INFO, "a message of another library"),
}

PROGRAM = LoggingProgram("quoth-web", EVENTS, Timer)


def note(event: str, problem: BaseException | None = None, /, **fields: Any) -> None:
    """Log an event. problem: an unexpected exception, whose traceback is logged, too."""
    level = EVENTS[event].level
    if log.isEnabledFor(level):
        line = line_of(event, fields)
        log.log(level, line, exc_info=problem, stacklevel=2, extra={"event": event, "fields": fields})
