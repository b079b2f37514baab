"""The Arrow buffers of arrays of bytes and text, without a copy."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray


def buffers_of(array: pa.Array) -> tuple[NDArray[np.int32], memoryview]:
    """The offsets of the values of a binary or string array, from 0 on, and their bytes, not copied.

    A null may have any bytes.
    """
    _, offsets, content = array.buffers()
    ends = np.frombuffer(offsets, np.int32)[array.offset : array.offset + len(array) + 1]
    first, last = ends[[0, -1]].tolist()
    return ends - ends[0], memoryview(b"" if content is None else content)[first:last]
