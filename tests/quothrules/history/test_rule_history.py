"""The versions of rule sets: which one has effect, and where its groups begin."""

from __future__ import annotations

import pytest

from quoth.rules.rule_change import REMOVE, RuleChange, change_of
from quothrules.history.rule_history import GroupPlace, RuleHistories, RuleHistory
from quothwire.errors import RequestError


def file(topics: str = "a*", delay: str = "0") -> str:
    return f'topics = ["{topics}"]\n[[rule]]\nto = "x"\ndelay = {delay}'


def history(*changes: RuleChange | str) -> RuleHistory:
    """Take changes; a text is a file, set without a place. The pointers are 10, 20, 30, ..."""
    found = RuleHistory("set")
    for number, change in enumerate(changes, 1):
        given = RuleChange("set", change) if isinstance(change, str) else change
        found.take(given._replace(pointer=10 * number))
    return found


REMOVED = RuleChange("set", "", REMOVE)
BROKEN = "topics = ["


def begun(topics: str, begin: int) -> RuleChange:
    return RuleChange("set", file(topics), begin=begin)


CASES = [
    ([], [], set()),
    ([file()], [("rules.set", 0, 10)], set()),
    ([file("b*")], [], set()),
    ([file(), file()], [("rules.set", 0, 10)], set()),
    ([begun("a*", 3)], [("rules.set", 0, 3)], set()),
    ([begun("a*", 3), file()], [("rules.set", 0, 3)], set()),
    ([file(), begun("a*", 0)], [("rules.set~2", 0, 0)], {"rules.set"}),
    ([file(), begun("a*", 0), begun("a*", 7)], [("rules.set~3", 0, 7)], {"rules.set", "rules.set~2"}),
    ([begun("a*", -1)], [("rules.set", 0, 10)], set()),
    ([file(), begun("a*", -1)], [("rules.set~2", 0, 20)], {"rules.set"}),
    ([file(), REMOVED], [], {"rules.set"}),
    ([file(), REMOVED, file()], [("rules.set~2", 0, 30)], {"rules.set"}),
    ([REMOVED, REMOVED, file()], [("rules.set", 0, 30)], set()),
    ([file("b*"), file()], [("rules.set", 0, 20)], set()),
    ([begun("b*", 0), file()], [("rules.set", 0, 20)], set()),
    ([begun("a*", 0), file("b*"), file()], [("rules.set", 0, 30)], set()),
    ([file(), file("b*")], [], {"rules.set"}),
    ([file(), file(delay="'5m'")], [("rules.set@5m", 300_000_000, 20)], {"rules.set"}),
    ([file(), file(delay="'5m'"), file()], [("rules.set", 0, 30)], {"rules.set@5m"}),
    ([file(), BROKEN], [("rules.set", 0, 10)], set()),
    ([BROKEN], [], set()),
    ([BROKEN, file()], [("rules.set", 0, 20)], set()),
    ([file(), BROKEN, file()], [("rules.set", 0, 10)], set()),
    ([file(), RuleChange("set", BROKEN, begin=0), file()], [("rules.set", 0, 10)], set()),
    ([file(), REMOVED, BROKEN], [], {"rules.set"}),
    ([file(), REMOVED, BROKEN, file()], [("rules.set~2", 0, 40)], {"rules.set"}),
]


@pytest.mark.parametrize(("changes", "places", "former"), CASES)
def test_groups_on_a_topic(
    changes: list[RuleChange | str], places: list[tuple[str, int, int]], former: set[str]
) -> None:
    """With the pointers 10, 20, ... of the changes."""
    found = history(*changes)
    assert found.places("abc") == [GroupPlace(*place) for place in places]
    assert found.former_groups("abc") == former


def test_the_version_in_effect() -> None:
    assert history().current is None
    assert history(file(), REMOVED).current is None
    found = history(file(), file("b"), BROKEN)
    assert found.current is not None
    assert (found.current.number, found.current.run, found.current.change.pointer) == (2, 1, 20)
    assert "no TOML" in found.problem
    assert found.versions[-1].number == 3
    assert history(file(), BROKEN, file()).problem == ""


def test_records_of_the_topic() -> None:
    """A record that is no change is counted, and has no effect."""
    change = RuleChange("set", file(), begin=5, author="ü")
    histories = RuleHistories()
    assert histories.take(7, b"set", change.text.encode(), change.headers) == "set"
    assert histories["set"].versions[0].change == change._replace(pointer=7)
    assert histories.take(8, b"set", b"", RuleChange("set", "", REMOVE).headers) == "set"
    assert histories["set"].current is None
    for key, value, headers in (
        (None, b"", {"action": b"set"}),
        (b"set", b"", {}),
        (b"set", b"", {"action": b"other"}),
        (b"set", b"\xff", {"action": b"set"}),
        (b"\xff", b"", {"action": b"set"}),
        (b"set", b"", {"action": b"set", "from": b"x"}),
        (b"set", b"", {"action": b"set", "from": b"-1"}),
    ):
        assert histories.take(9, key, value, headers) == ""
        with pytest.raises(RequestError, match=r"bad_setting|bad_pointer"):
            change_of(9, key, value, headers)
    assert histories.skipped == 7
    assert [*histories] == ["set"]
