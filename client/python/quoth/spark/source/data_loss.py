"""Data loss: records that cannot be read any more, as an error, a warning or a record of the loss topic."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from typing import Literal, NamedTuple, NoReturn

from quoth.spark import connections
from quoth.spark.options import Options
from quothwire.errors import error

Reason = Literal["trimmed", "damaged", "recreated", "deleted"]
"""The reasons of a `quoth.Gap`, and ``deleted`` for a topic that does not exist any more."""

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
    """Lost records of a topic after one pointer and before another.

    next: 0 if no record follows them yet. records: their number, -1 if it is unknown.
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
"""Handles a loss; it may raise."""


def refuse(loss: DataLoss, hint: str = _PLANNED) -> NoReturn:
    """Raise a loss as `NotFound` or `Damaged`."""
    raise error(_WHY[loss.reason][0], str(loss), hint)


def into(losses: list[DataLoss]) -> Lose:
    """Return a handler that appends losses to a list, and raises `NotFound` if the whole topic is gone."""

    def lose(loss: DataLoss) -> None:
        if loss.reason in ("deleted", "recreated"):
            refuse(loss)
        losses.append(loss)

    return lose


class LossReporter:
    """Handles losses as the options `failOnDataLoss` and `lossTopic` say.

    where: the query and the batch, which the records of the loss topic name.
    """

    def __init__(self, options: Options, **where: str) -> None:
        self._options = options
        self._where = where

    def report(self, loss: DataLoss) -> None:
        """Raise `NotFound` or `Damaged`; or log a warning and publish the loss to the loss topic.

        A task or a batch that is repeated reports it again.
        """
        if self._options.fail_on_data_loss:
            refuse(loss, _HINT)
        log.warning("%s", loss)
        if self._options.loss_topic is not None:
            client = connections.client(self._options.url, self._options.timeout)
            report = json.dumps({**loss._asdict(), **self._where})
            client.publish(self._options.loss_topic, report.encode(), key=loss.topic.encode())
