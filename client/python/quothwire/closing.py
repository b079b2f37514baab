"""The base class of what has a `close` and works in a ``with`` statement."""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self


class Closeable(ABC):
    """Yields itself in a ``with`` statement, and closes at its end."""

    @abstractmethod
    def close(self) -> None:
        """Close it. Does nothing the second time."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
