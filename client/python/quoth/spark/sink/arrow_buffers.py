"""The bytes in the cells of Arrow's arrays, where they lie."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray


def cells_of(array: pa.Array) -> tuple[NDArray[np.int32], memoryview]:
    """Where each cell of a binary or string array ends, beginning with 0, and their bytes, not copied.

    What lies in a cell that is null Arrow does not say.
    """
    _, offsets, content = array.buffers()
    ends = np.frombuffer(offsets, np.int32)[array.offset : array.offset + len(array) + 1]
    first, last = ends[[0, -1]].tolist()
    return ends - ends[0], memoryview(b"" if content is None else content)[first:last]
