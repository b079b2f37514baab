"""What is closed in the end: by its `close`, or by a ``with`` around its use."""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self


class Closeable(ABC):
    """Is itself in a ``with``, and closed behind it, whatever happens there."""

    @abstractmethod
    def close(self) -> None:
        """Let go of what is held. Does nothing the second time."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
