"""The example of messages over HTTP: each of its commands has the answer that it expects."""

from __future__ import annotations

from collections.abc import Callable

from kit.machine.commands import Ended

SCRIPT_S = 100.0


def test_commands_of_curl_put_and_get_messages_through_the_gateway(run_example: Callable[..., Ended]) -> None:
    """The script ends with another status when an answer is not as it says."""
    ended = run_example("sh", "http.sh", seconds=SCRIPT_S)
    assert (ended.status, ended.err) == (0, "")
    assert sum(line.startswith("$ curl") for line in ended.lines) == 10
    assert ended.lines[-4:] == ["a pound of tea", "a pound of sugar", "a pound of salt", ""]
