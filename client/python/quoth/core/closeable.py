"""The base class of what works in an ``async with`` statement; `quothwire.closing` has its twin."""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self


class AsyncCloseable(ABC):
    """An asynchronous context manager that returns itself and is closed when the block ends."""

    @abstractmethod
    async def close(self) -> None:
        """Release what is held. Does nothing the second time."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
