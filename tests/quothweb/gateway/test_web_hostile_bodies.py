"""Bodies that are JSON and no sense: each is refused with an error of the client, and has no effect."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from kit.broker.brokers import BrokerProcess
from kit.web.servers import TokenFile, code_of
from quothweb.access.attempts import ATTEMPTS_MAX

from ..conftest import StartWeb

HALF = '"\\ud800"'
"""Half a character: JSON may name it, and no text in UTF-8 can hold it."""
DIGITS = "1" * 4_000
"""More than the pointers have, and fewer than Python refuses in JSON itself."""
BODIES = [
    ("PUT", "", '{"topic": "y"}', "bad_setting"),
    ("PUT", "", '{"client": {}}', "bad_setting"),
    ("PUT", "", '{"self": 1}', "bad_setting"),
    ("PUT", "", f"{{{HALF}: 1}}", "bad_setting"),
    ("PUT", "", f'{{"durability": {HALF}}}', "bad_request"),
    ("PUT", "", f'{{"max_bytes": {DIGITS}}}', "bad_setting"),
    ("PATCH", "", '{"topic": "y"}', "bad_setting"),
    ("PATCH", "", f'{{"max_age": {HALF}}}', "bad_setting"),
    ("PATCH", "", f'{{"max_age": "{DIGITS}d"}}', "bad_setting"),
    ("PUT", "/groups/g", f'{{"start": "{"1" * 5_000}"}}', "bad_pointer"),
    ("PUT", "/groups/g", f'{{"start": {DIGITS}}}', "bad_pointer"),
    ("PUT", "/groups/g", f'{{"start": {HALF}}}', "bad_pointer"),
    ("PUT", "/groups/g", '{"start": "\\u0661\\u0662"}', "bad_pointer"),
    ("PUT", "/groups/g", f"{{{HALF}: 1}}", "bad_setting"),
    ("POST", "/groups/g/seek", f'{{"to": "{"1" * 5_000}"}}', "bad_pointer"),
    ("POST", "/groups/g/nack", f'{{"lease": {HALF}, "pointers": [1]}}', "bad_request"),
    ("POST", "/groups/g/ack", f'{{"pointers": [{DIGITS}]}}', "bad_pointer"),
    ("POST", "/groups/g/term", f'{{"lease": "1-2-5", "pointers": [1], "reason": {HALF}}}', "bad_request"),
    ("POST", "/groups/g/ack", f'{{{HALF}: 1, "pointers": [1]}}', "bad_request"),
]


@pytest.mark.parametrize(("method", "path", "body", "code"), BODIES)
def test_a_body_without_sense_is_refused_and_no_defect(
    http: httpx.Client, topic: str, method: str, path: str, body: str, code: str
) -> None:
    assert http.put(f"/topics/{topic}", json={}).status_code == 201
    assert http.put(f"/topics/{topic}/groups/other", json={}).status_code == 200
    before = http.get(f"/topics/{topic}").json()["settings"]
    answer = http.request(
        method, f"/topics/{topic}{path}", content=body, headers={"Content-Type": "application/json"}
    )
    assert (answer.status_code, code_of(answer)) == (400, code), answer.text[:500]
    assert http.get(f"/topics/{topic}").json()["settings"] == before
    assert [one["group"] for one in http.get(f"/topics/{topic}/groups").json()["groups"]] == ["other"]


def test_a_token_that_is_no_text_is_an_attempt_like_any_other(
    broker: BrokerProcess, start_web: StartWeb, tmp_path: Path
) -> None:
    web = start_web(broker.url, tokens=TokenFile(tmp_path).path)
    with web.client() as http:
        answers = [http.post("/session", content=f'{{"token": {HALF}}}') for _ in range(ATTEMPTS_MAX + 1)]
    assert [one.status_code for one in answers] == [401] * ATTEMPTS_MAX + [429]
