"""The errors of HTTP answers: each code has a status, and the page lists all of them."""

from __future__ import annotations

import re
from http import HTTPStatus
from pathlib import Path

from quothweb.problems import STATUSES, UNKNOWN_STATUS, WEB_CODES, HttpProblem
from quothwire.errors import CODES, error

PAGE = (Path(__file__).parents[2] / "tools" / "quothweb" / "GATEWAY.md").read_text()


def test_each_code_of_quoth_has_a_status_and_no_other_one() -> None:
    assert set(STATUSES) == set(CODES)
    assert not set(WEB_CODES) & set(CODES)
    for status in (*STATUSES.values(), *(row.status for row in WEB_CODES.values()), UNKNOWN_STATUS):
        assert HTTPStatus(status) >= 400


def test_a_status_says_whose_fault_it_is() -> None:
    """Retryable errors are 408, 409, 429 or 5xx; what will not is no 503."""
    for code, row in CODES.items():
        problem = HttpProblem.of(error(code, "text"))
        assert problem.content()["error"]["retryable"] is row.retryable
        assert not row.retryable or problem.status in (409, 503, 504, 507), code
        assert problem.status != 503 or row.retryable or code == "closed"
        assert ("Retry-After" in problem.headers) == (row.retryable and problem.status in (429, 503, 507))


def test_an_unknown_code_of_a_newer_broker_is_a_bad_gateway() -> None:
    problem = HttpProblem.of(error("something_new", "text"))
    assert (problem.status, problem.code, problem.retryable) == (502, "something_new", False)


def test_the_page_lists_each_code_with_its_status() -> None:
    rows = dict(re.findall(r"^\| `(\w+)` \| (\d+) \|", PAGE, re.MULTILINE))
    for row in re.findall(r"^\| ((?:`\w+`(?:, )?)+) \| (\d+) \|", PAGE, re.MULTILINE):
        rows |= dict.fromkeys(re.findall(r"`(\w+)`", row[0]), row[1])
    expected = {**STATUSES, **{code: row.status for code, row in WEB_CODES.items()}}
    assert rows == {code: str(status) for code, status in expected.items()}
