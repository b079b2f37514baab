"""Records that cannot be read any more: what is said of them, who is told, whether the reading goes on."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from typing import Literal, NamedTuple, NoReturn

from quoth.spark import connections
from quoth.spark.options import Options
from quothwire.errors import error

Reason = Literal["trimmed", "damaged", "recreated", "deleted"]
"""Those of a `quoth.Gap`, and ``deleted``: there is no such topic any more."""

log = logging.getLogger("quoth.spark")

_WHY = {
    "trimmed": ("unknown_record", "were removed by retention or a trim before they were read"),
    "damaged": ("damaged", "cannot be read: their bytes do not check"),
    "deleted": ("unknown_topic", "are gone: the topic was deleted"),
    "recreated": ("unknown_topic", "are gone: the topic was deleted, and made anew"),
}
_PLANNED = "they were there when the range was planned: plan anew, behind them if they are damaged"
_HINT = (
    "nothing was skipped, a checkpoint is as it was; with failOnDataLoss=false a query goes on behind them,"
    " and tells in the lossTopic, if there is one, what it skipped"
)


class DataLoss(NamedTuple):
    """Records of a topic after one pointer and before another. records: how many, -1 if nobody knows.

    next: 0 if nothing follows them yet.
    """

    topic: str
    after: int
    next: int
    records: int
    reason: Reason

    def __str__(self) -> str:
        count = "records" if self.records < 0 else f"{self.records} records"
        end = f" and before {self.next}" if self.next else ""
        return f"topic {self.topic!r}: {count} after {self.after}{end} {_WHY[self.reason][1]}"


Lose = Callable[[DataLoss], None]
"""What is done about a loss; it may raise."""


def refuse(loss: DataLoss, hint: str = _PLANNED) -> NoReturn:
    """Raise what a loss is to who was promised its records: `NotFound` or `Damaged`."""
    raise error(_WHY[loss.reason][0], str(loss), hint)


def into(losses: list[DataLoss]) -> Lose:
    """What puts losses into a list, and raises `NotFound` for a topic that is gone as a whole."""

    def lose(loss: DataLoss) -> None:
        if loss.reason in ("deleted", "recreated"):
            refuse(loss)
        losses.append(loss)

    return lose


class LossReporter:
    """What becomes of losses, by the options of a reading."""

    def __init__(self, options: Options, **where: str) -> None:
        """where: which query and batch, for those who read of it in the loss topic."""
        self._options = options
        self._where = where

    def tell(self, loss: DataLoss) -> None:
        """End the query with `NotFound` or `Damaged`; or warn, publish it in the loss topic, and go on.

        A task or a batch that is repeated tells it again.
        """
        if self._options.fail_on_data_loss:
            refuse(loss, _HINT)
        log.warning("%s", loss)
        if self._options.loss_topic is not None:
            client = connections.client(self._options.url, self._options.timeout)
            told = json.dumps({**loss._asdict(), **self._where})
            client.publish(self._options.loss_topic, told.encode(), key=loss.topic.encode())
