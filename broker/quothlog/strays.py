"""Files that bear the name of a segment, and cannot be one of this log.

The last segment says above which pointer a log goes on, its name included. So a file that somebody has put
there would move the log's clock for good, an empty one as well. What is neither read nor written that way:

- a file with nothing in it, wherever it stands: a segment has its name once its header block is complete;
- behind the last segment, a file whose header block names another segment or another log;
- behind the last segment, a file without a header block in which nothing tells of this log: no field of the
  block, no batch, no index beside it. A segment whose header block has rotted keeps some of these.

An opening sets such files aside; who looks without a lock passes over them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from quothlog import layout, segment
from quothlog.filesystem import File
from quothlog.scan import newest_pointer_in
from quothlog.segment import Segment
from quothwire.errors import Damaged, QuothError


def strays_behind(floors: Sequence[int], is_stray: Callable[[int], bool]) -> list[int]:
    """The floors at the end of a listing, oldest first, whose files are strays."""
    strays: list[int] = []
    for floor in reversed(floors):
        if not is_stray(floor):
            break
        strays.insert(0, floor)
    return strays


def is_stray(one: Segment, file: File) -> bool:
    """Is a file that is called like the last segment of a log none? One that cannot be read may be it."""
    try:
        head = file.read(layout.BLOCK_BYTES, 0)
        try:
            if layout.named_in(head)[:2] == (one.log_id, one.floor):
                return False
            return bool(segment.read_block(file))
        except Damaged:
            return not _tells_of_it(one, file, head)
    except (OSError, QuothError):  # one of another version is left as it is, too
        return False


def _tells_of_it(one: Segment, file: File, head: bytes) -> bool:
    """Is there anything of this segment, or of its log, in a file without a header block or beside it?"""
    if layout.is_like_block(head, one.log_id, one.floor) or one.claim() is not None:
        return True
    return newest_pointer_in(file, 0, file.size(), one.log_id) > 0
