"""The errors of Quoth: one table of wire codes, one small tree of exceptions.

The code is on the wire and never changes. The class says whose fault the error is, ``retryable`` whether the
same request may succeed later, and ``hint`` what a person can do. An error from the wire and one that was
raised here have the same class and code.
"""

from __future__ import annotations

from math import isfinite, isnan
from typing import NamedTuple


class QuothError(Exception):
    """Base of all errors of Quoth. ``str(error)`` is the code and the text, with the hint if there is one."""

    def __init__(self, code: str, text: str, hint: str | None = None) -> None:
        super().__init__(code, text, hint)  # all three, so that it can be pickled
        self.code = code
        self.text = text
        row = CODES.get(code, _UNKNOWN)
        self.hint = row.hint if hint is None else hint
        self.retryable = row.retryable

    def __str__(self) -> str:
        return f"{self.code}: {self.text}" + (f" ({self.hint})" if self.hint else "")


class RequestError(QuothError):
    """The request itself is wrong: change it; sending it again will not help."""


class NotFound(QuothError):
    """The topic or the record does not exist."""


class Conflict(QuothError):
    """The request is well formed but contradicts what the broker holds."""


class AuthError(QuothError):
    """The broker does not know this client, or does not allow it this operation.

    Nothing was done, unless the text of an ``auth_failed`` says that the outcome is not known: the broker has
    closed the connection during the call, and then refused another one.
    """


class Unavailable(QuothError):
    """The broker cannot do it now; the same request may succeed later."""


class BrokerFailure(QuothError):
    """The broker's disk or code failed: the outcome is unknown, the broker's log has the reason.

    Also the class of a code that only a newer broker knows.
    """


class Damaged(QuothError):
    """Stored or received bytes do not match their checksum."""


class Disconnected(QuothError):
    """No answer came in time. The request may have taken effect or not."""


class Code(NamedTuple):
    """One row of the table of codes.

    hint: what a person can do. meaning: what happened, as a sentence.
    """

    error: type[QuothError]
    retryable: bool
    hint: str
    meaning: str = ""


_RETRYABLE = frozenset(("out_of_sequence", "timed_out", "disconnected"))
"""With all codes of `Unavailable`."""
_ROWS: dict[type[QuothError], dict[str, tuple[str, str]]] = {
    RequestError: {
        "bad_request": (
            "`quoth help protocol` has the shape of every request",
            "The frames, fields or values of the request are wrong.",
        ),
        "unsupported_version": (
            "`hello` tells the versions that the broker speaks",
            "The other side speaks another version of the protocol, or a file has another version.",
        ),
        "unknown_operation": (
            "`hello` tells the operations that the broker knows",
            "The broker has no such operation.",
        ),
        "bad_topic": (
            "1 to 200 bytes of UTF-8, no control characters, no '/', not '.' or '..'",
            "This is not a topic's name.",
        ),
        "bad_group": (
            "1 to 100 bytes of UTF-8, else as a topic's name",
            "This is not a group's name.",
        ),
        "bad_pointer": (
            "a pointer is an integer from 0 to 2^56 - 1",
            "This is neither a pointer nor a time.",
        ),
        "bad_batch": (
            "nothing of it was stored; `quoth help protocol` draws a batch",
            "A batch has counts, lengths, offsets, checksums or reserved bits that are wrong.",
        ),
        "bad_setting": (
            "correct what the text names; nothing was done",
            "There is no such setting, key or variable, or it cannot have this value.",
        ),
        "too_large": (
            "nothing of it was stored; `hello` tells the limits",
            "A record, a batch or a request is above a limit.",
        ),
    },
    NotFound: {
        "unknown_topic": (
            "the first publish makes a topic; `quoth topic ls` lists them",
            "The topic does not exist, or was deleted meanwhile.",
        ),
        "unknown_group": (
            "nothing was done; `quoth group ls` lists the groups of a topic",
            "The topic has no group of this name.",
        ),
        "unknown_record": ("retention or trim may have removed it", "No record has this pointer."),
    },
    Conflict: {
        "topic_exists": (
            "`quoth topic set` changes its settings, `quoth topic rm` deletes it",
            "A topic of this name exists.",
        ),
        "group_exists": (
            "`quoth group set` changes its settings, `quoth group rm` deletes it",
            "A group of this name exists, with other settings.",
        ),
        "groups_max": (
            "delete groups, or raise groups_max",
            "The topic has as many groups as the broker's configuration allows.",
        ),
        "lease_lost": (
            "another member may have the record now",
            "The lease has expired, or the group was moved to another place.",
        ),
        "topics_max": (
            "delete topics, or raise topics_max",
            "The broker holds as many topics as its configuration allows.",
        ),
        "quota_exceeded": (
            "nothing was done; free some of it, or raise the quota in the broker's clients file",
            "A quota of the client's key, or of all clients together, is used up; the text names it.",
        ),
        "unknown_producer": (
            "the broker no longer knows this producer id: begin a new one at sequence 1",
            "The topic no longer knows the producer id, so it cannot tell a retry from something new.",
        ),
        "out_of_sequence": (
            "nothing was stored; send the missing sequence first",
            "A batch of the producer is missing before this one.",
        ),
        "sequence_reused": (
            "this sequence was stored with other bytes",
            "The producer used one sequence number for two different batches.",
        ),
        "forgotten_sequence": (
            "stored before, but too long ago to tell its pointers; it was not stored again",
            "The batch or version was stored before, too long ago for its result to be known.",
        ),
        "not_staged": (
            "nothing was published; write the missing parts again, or abort the transaction",
            "Parts of the transaction that were named are not staged as they were named.",
        ),
        "newest_differs": (
            "nothing was published; see what was published meanwhile",
            "The application has published another version of its transactions meanwhile.",
        ),
        "already_published": (
            "nothing was staged; its status tells where its records are",
            "This version of the application's transaction was published before.",
        ),
        "staged_max": (
            "publish or abort what is staged on this topic, or raise staged_bytes_max",
            "The topic holds as much as may be staged on it.",
        ),
        "locked": (
            "one process owns a directory: stop that one, or use another directory",
            "The directory or file belongs to another process.",
        ),
        "pointers_exhausted": (
            "the clock or the log stands at the end of 56 bits",
            "No pointer is left: the clock or the log stands at the end of the year 4253.",
        ),
    },
    AuthError: {
        "auth_failed": (
            "is it the right key file, and the right broker? `quoth key show FILE` prints both public keys",
            "The broker refused the client's key, wants one, or is not the broker that the key file names.",
        ),
        "denied": (
            "nothing was done; who runs the broker grants rights in its clients file",
            "The client's key does not have the right for this operation.",
        ),
    },
    Unavailable: {
        "busy": (
            "a queue is full; nothing was stored; try again in a moment",
            "A queue of the broker is full, or it has no thread, descriptor or memory left.",
        ),
        "recovering": (
            "the topic is being opened; try again in a moment",
            "The topic is being opened and looked through.",
        ),
        "stopping": ("the broker is shutting down; nothing was stored", "The broker is shutting down."),
        "disk_low": (
            "free some space or trim; reads go on; writing resumes by itself",
            "The disk is nearly full, or a file or a quota is at its limit; nothing was stored.",
        ),
    },
    BrokerFailure: {
        "storage_failed": (
            "the topic takes no writes until the broker is restarted; reads go on",
            "The disk failed: whether the request was carried out is not known.",
        ),
        "internal": (
            "the broker's log holds the traceback",
            "The broker met a defect of its own: whether the request was carried out is not known.",
        ),
        "unusable_system": (
            "the system withholds what a log needs; the text says what and where it should be",
            "The operating system, or the sandbox of the service, withholds what a log needs.",
        ),
    },
    Damaged: {
        "damaged": (
            "`quoth log dump` shows what is left",
            "Stored or received bytes do not match their checksums.",
        ),
    },
    Disconnected: {
        "timed_out": (
            "whether it took effect is not known",
            "The broker is connected and did not answer in time.",
        ),
        "disconnected": (
            "is a broker running there? `quoth serve` starts one",
            "No broker answers at this address.",
        ),
        "closed": ("the client was closed", "The client, or the broker in this process, was closed."),
    },
}
"""By class and code: what a person can do, and what happened."""

CODES: dict[str, Code] = {
    code: Code(kind, kind is Unavailable or code in _RETRYABLE, hint, meaning)
    for kind, rows in _ROWS.items()
    for code, (hint, meaning) in rows.items()
}
_UNKNOWN = Code(BrokerFailure, False, "a newer broker's: whether it was done is not known")


def error(code: str, text: str, hint: str | None = None) -> QuothError:
    """Make the error of a code. An unknown code is a newer broker's and becomes a `BrokerFailure`."""
    return CODES.get(code, _UNKNOWN).error(code, text, hint)


SHOWN_MAX = 80
"""Characters of a wrong value that an error quotes."""


def shown(value: object) -> str:
    """Format a value for the text of an error: short, printable, and without the terms of Python."""
    match value:
        case None:
            return "nil"
        case bool():
            return "true" if value else "false"
        case float() if not isfinite(value):
            return "NaN" if isnan(value) else "infinity" if value > 0 else "-infinity"
        case int() if abs(value) >= 10**SHOWN_MAX:  # Python refuses to write one of thousands of digits
            return f"a number of more than {SHOWN_MAX} digits"
        case int() | float():
            return str(value)[:SHOWN_MAX]
        case str():
            return repr(value[:SHOWN_MAX]) if value else "empty"
        case bytes() | bytearray() | memoryview():
            return "binary data"
        case list() | tuple():
            return "a list"
        case dict():
            return "a map"
        case _:
            return "neither text nor number"


def quoted(value: object) -> str:
    """Format a value of a setting as Python does, or as `shown` does if that is long or impossible."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # a number of thousands of digits, a list in a list in a list ...
        return shown(value)
    return text if len(text) <= 2 * SHOWN_MAX else shown(value)


def shown_frame(frame: bytes) -> str:
    """Format a frame that should be text for the text of an error."""
    return shown(bytes(frame[:SHOWN_MAX]).decode("utf-8", "replace"))
