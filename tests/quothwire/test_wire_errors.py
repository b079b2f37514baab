"""Errors: every code has its class, its hint and its place in the tree, here and after a journey."""

from __future__ import annotations

import copy
import pickle

import pytest

from quothwire import errors
from quothwire.errors import CODES, QuothError, error

FAULTS = {
    errors.RequestError,
    errors.NotFound,
    errors.Conflict,
    errors.Unavailable,
    errors.BrokerFailure,
    errors.Damaged,
    errors.Disconnected,
}

every_code = pytest.mark.parametrize("code", CODES)


def test_classes_of_the_codes_are_those_of_the_tree() -> None:
    assert {row.error for row in CODES.values()} == FAULTS
    assert set(QuothError.__subclasses__()) >= FAULTS
    assert all(fault.__bases__ == (QuothError,) for fault in FAULTS), "a caller catches one level"


@every_code
def test_code_has_a_class_and_says_what_to_do(code: str) -> None:
    problem = error(code, "something happened")
    assert type(problem) is CODES[code].error
    assert (problem.code, problem.text) == (code, "something happened")
    assert problem.hint.strip()
    assert problem.retryable is CODES[code].retryable
    assert str(problem) == f"{code}: something happened ({CODES[code].hint})"


@every_code
def test_code_is_a_short_word_for_the_wire(code: str) -> None:
    assert code.isascii()
    assert code.replace("_", "").islower()
    assert len(code) <= 24


def test_not_now_is_retryable_and_a_wrong_request_never() -> None:
    for code, row in CODES.items():
        if row.error is errors.Unavailable:
            assert row.retryable, code
        if row.error in (errors.RequestError, errors.NotFound, errors.BrokerFailure, errors.Damaged):
            assert not row.retryable, code


def test_hint_of_the_raiser_stands_before_the_one_of_the_code() -> None:
    assert str(error("busy", "full", "wait a second")) == "busy: full (wait a second)"
    assert str(error("busy", "full", "")) == "busy: full"


@pytest.mark.parametrize("code", ["from_a_newer_broker", "", "BUSY"])
def test_unknown_code_is_the_failure_of_the_broker_and_keeps_its_words(code: str) -> None:
    problem = error(code, "what it said")
    assert type(problem) is errors.BrokerFailure
    assert (problem.code, problem.text) == (code, "what it said")
    assert not problem.retryable
    assert "not known" in problem.hint
    assert vars(pickle.loads(pickle.dumps(problem))) == vars(problem)


@every_code
@pytest.mark.parametrize("hint", [None, "", "try tomorrow"])
def test_error_survives_pickling_and_copying(code: str, hint: str | None) -> None:
    problem = error(code, "it happened", hint)
    for twin in (pickle.loads(pickle.dumps(problem)), copy.copy(problem), copy.deepcopy(problem)):
        assert type(twin) is type(problem)
        assert vars(twin) == vars(problem)
        assert str(twin) == str(problem)
