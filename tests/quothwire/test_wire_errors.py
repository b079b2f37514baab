"""Errors: every code has a class and a hint, also after pickling."""

from __future__ import annotations

import copy
import pickle

import pytest

from quothwire import errors
from quothwire.errors import CODES, QuothError, error


def test_classes_of_the_codes_are_one_level_below_the_base() -> None:
    classes = {one for one in QuothError.__subclasses__() if one.__module__ == errors.__name__}
    assert {row.error for row in CODES.values()} == classes
    assert all(one.__bases__ == (QuothError,) for one in classes)


@pytest.mark.parametrize("code", CODES)
def test_code_has_a_class_and_a_hint(code: str) -> None:
    problem = error(code, "something happened")
    assert type(problem) is CODES[code].error
    assert (problem.code, problem.text) == (code, "something happened")
    assert problem.hint.strip()
    assert problem.retryable is CODES[code].retryable
    assert str(problem) == f"{code}: something happened ({CODES[code].hint})"
    assert code.isascii()
    assert code.replace("_", "").islower()
    assert len(code) <= 24


def test_unavailable_can_be_retried_and_a_wrong_request_cannot() -> None:
    for code, row in CODES.items():
        if row.error is errors.Unavailable:
            assert row.retryable, code
        if row.error in (errors.RequestError, errors.NotFound, errors.BrokerFailure, errors.Damaged):
            assert not row.retryable, code


def test_given_hint_replaces_the_one_of_the_code() -> None:
    assert str(error("busy", "full", "wait a second")) == "busy: full (wait a second)"
    assert str(error("busy", "full", "")) == "busy: full"


def test_unknown_code_is_a_failure_of_the_broker_with_its_text() -> None:
    for code in ("from_a_newer_broker", "", "BUSY"):
        problem = error(code, "what it said")
        assert type(problem) is errors.BrokerFailure
        assert (problem.code, problem.text, problem.retryable) == (code, "what it said", False)
        assert "not known" in problem.hint


@pytest.mark.parametrize("code", [*CODES, "from_a_newer_broker"])
def test_error_survives_pickling_and_copying(code: str) -> None:
    for hint in (None, "", "try tomorrow"):
        problem = error(code, "it happened", hint)
        for twin in (pickle.loads(pickle.dumps(problem)), copy.copy(problem), copy.deepcopy(problem)):
            assert type(twin) is type(problem)
            assert vars(twin) == vars(problem)
            assert str(twin) == str(problem)
