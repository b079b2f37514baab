"""The errors of HTTP answers: a status for each code of Quoth, and codes of the server itself.

An error is JSON: ``{"error": {"code": ..., "text": ..., "hint": ..., "retryable": ...}}``.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from starlette.responses import JSONResponse

from quothwire.errors import QuothError

RETRY_AFTER_S = 1
"""Seconds after which a client may repeat a request that was refused for now."""

STATUSES: Mapping[str, int] = MappingProxyType(
    {
        "bad_request": 400,
        "bad_topic": 400,
        "bad_group": 400,
        "bad_pointer": 400,
        "bad_batch": 400,
        "bad_setting": 400,
        "too_large": 413,
        "unsupported_version": 501,
        "unknown_operation": 501,
        "unknown_topic": 404,
        "unknown_group": 404,
        "unknown_record": 404,
        "topic_exists": 409,
        "group_exists": 409,
        "lease_lost": 409,
        "unknown_producer": 409,
        "out_of_sequence": 409,
        "forgotten_sequence": 409,
        "not_staged": 409,
        "newest_differs": 409,
        "already_published": 409,
        "locked": 409,
        "sequence_reused": 422,
        "quota_exceeded": 429,
        "groups_max": 507,
        "topics_max": 507,
        "staged_max": 507,
        "pointers_exhausted": 507,
        "disk_low": 507,
        "auth_failed": 403,
        "denied": 403,
        "busy": 503,
        "recovering": 503,
        "stopping": 503,
        "storage_failed": 500,
        "internal": 500,
        "unusable_system": 500,
        "damaged": 500,
        "timed_out": 504,
        "disconnected": 503,
        "closed": 503,
    }
)
"""The status for each code of `quothwire.errors.CODES`. A newer broker's code is 502."""
UNKNOWN_STATUS = 502


class WebCode(NamedTuple):
    """A code of the server itself. hint: what a client can do. meaning: what happened, as a sentence."""

    status: int
    hint: str
    meaning: str
    retryable: bool = False


WEB_CODES: Mapping[str, WebCode] = MappingProxyType(
    {
        "unauthenticated": WebCode(
            401, "send the header Authorization: Bearer TOKEN", "The request has no token, or a wrong one."
        ),
        "cross_site": WebCode(
            403, "a request of another site needs its origin in cors_origins", "A page of another site asks."
        ),
        "actions_off": WebCode(
            403, "set allow_actions in the configuration of quoth-web", "The server lets no request do this."
        ),
        "payloads_off": WebCode(
            403,
            "payloads is off in the configuration of quoth-web",
            "The server shows no content of records.",
        ),
        "wrong_host": WebCode(
            421, "add the name to hosts in the configuration", "The header Host names another server."
        ),
        "unknown_path": WebCode(404, "openapi.json lists all paths", "There is no such path."),
        "method_not_allowed": WebCode(405, "the header Allow lists them", "The path has no such method."),
        "not_acceptable": WebCode(
            406, "leave Accept out for the default", "No format of the answer is in the header Accept."
        ),
        "slow_request": WebCode(
            408, "nothing was done; send it faster", "The body of the request did not come in time.", True
        ),
        "cut_body": WebCode(400, "nothing was done", "The client has gone before the end of its body."),
        "log_differs": WebCode(
            409, "nothing was done; describe the topic again", "The topic has another log: it was recreated."
        ),
        "unsupported_media_type": WebCode(
            415, "the text names those that are known", "The body has a type that this path does not take."
        ),
        "too_many_attempts": WebCode(429, "wait a minute", "The address has sent many wrong tokens.", True),
        "too_many_requests": WebCode(
            429, "wait for answers, then go on", "The token has as many requests as it may.", True
        ),
        "overloaded": WebCode(
            503, "nothing was done; try again in a moment", "The server is at one of its limits.", True
        ),
        "shutting_down": WebCode(503, "nothing was done; try again in a moment", "The server ends.", True),
        "key_unusable": WebCode(
            503, "the log of quoth-web names the file", "The key file of the token cannot be used."
        ),
        "defect": WebCode(
            500, "the log of quoth-web holds the traceback", "The server met a defect of its own."
        ),
    }
)
"""The codes that no broker sends."""


class HttpProblem(Exception):
    """An error that becomes an answer. headers: more of its headers."""

    def __init__(
        self,
        code: str,
        text: str,
        hint: str = "",
        *,
        headers: Mapping[str, str] | None = None,
        retryable: bool | None = None,
    ) -> None:
        super().__init__(code, text)
        row = WEB_CODES.get(code)
        self.code, self.text = code, text
        self.status = row.status if row else STATUSES.get(code, UNKNOWN_STATUS)
        self.hint = hint or (row.hint if row else "")
        self.retryable = retryable if retryable is not None else bool(row and row.retryable)
        self.headers = dict(headers or {})
        if self.retryable and self.status in (429, 503, 507):
            self.headers.setdefault("Retry-After", str(RETRY_AFTER_S))

    @classmethod
    def of(cls, problem: QuothError) -> HttpProblem:
        """Return the answer to an error of the broker or of a client of it."""
        return cls(problem.code, problem.text, problem.hint or "", retryable=problem.retryable)

    def content(self) -> dict[str, Any]:
        """Return the object of the answer."""
        about = {"code": self.code, "text": self.text, "hint": self.hint, "retryable": self.retryable}
        return {"error": about}

    def response(self) -> JSONResponse:
        """Return the answer."""
        return JSONResponse(self.content(), self.status, {"Cache-Control": "no-store", **self.headers})
