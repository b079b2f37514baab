"""One change of a rule set, as the topic `quoth.rules` has it.

key       the name of the rule set
value     the rule file, as it was written; empty if the rule set is removed
headers   action: set or remove
          from: where the rules begin: above a pointer in digits, 0 for the oldest record, or `end`, behind
                this record. Without it a new rule set begins there, too, and another version of it goes on
                where it is
          author: the person who has made the change
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from quothwire.errors import error
from quothwire.pointer import check_pointer
from quothwire.protocol.group_messages import END

_END = b"end"
SET, REMOVE = ACTIONS = ("set", "remove")


class RuleChange(NamedTuple):
    """A rule file that is set, or the removal of a rule set.

    pointer: of the record; 0 before it is written. begin: the pointer above which the rules begin, `END` for
    that of the record, None for where they are.
    """

    name: str
    text: str
    action: str = SET
    begin: int | None = None
    author: str = ""
    pointer: int = 0

    @property
    def headers(self) -> dict[str, bytes]:
        """The headers of its record."""
        headers = {"action": self.action.encode()}
        if self.begin is not None:
            headers["from"] = _END if self.begin == END else b"%d" % self.begin
        if self.author:
            headers["author"] = self.author.encode("utf-8", "replace")
        return headers


def change_of(pointer: int, key: bytes | None, value: bytes, headers: Mapping[str, bytes]) -> RuleChange:
    """Read a record of the topic. Raises `RequestError` ``bad_setting`` for one that is no change."""
    action = headers.get("action", b"").decode("utf-8", "replace")
    if key is None or action not in ACTIONS:
        text = f"the record {pointer} is no change of rules: it has no key, or no header action"
        raise error("bad_setting", text, "quoth rule add and quoth rule rm write such records")
    try:
        begin = headers.get("from")
        place = None if begin is None else END if begin == _END else check_pointer(int(begin))
        author = headers.get("author", b"").decode("utf-8", "replace")
        return RuleChange(key.decode(), value.decode(), action, place, author, pointer)
    except ValueError:  # also of text that is not UTF-8
        raise error("bad_setting", f"the record {pointer} has a key, value or place that is none") from None
