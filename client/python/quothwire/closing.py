"""The base class of what has a `close` and can stand in a ``with``."""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self


class Closing(ABC):
    """Returns itself in a ``with``, and is closed at its end."""

    @abstractmethod
    def close(self) -> None:
        """Close it. Does nothing the second time."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
