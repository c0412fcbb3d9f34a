"""Arrays as bytes, one after the other; what is read is an array or an error, and never runs code."""

import io
from tokenize import TokenError
from typing import Any

import numpy as np
from numpy.typing import NDArray

ARRAY_FAULTS = (ArithmeticError, MemoryError, RecursionError, SyntaxError, TokenError, TypeError, ValueError)
"""What numpy raises for files that are no arrays: it parses their header as a Python literal and believes the shape."""


def encode_arrays(*arrays: NDArray[Any]) -> bytes:
    """The content of a .npy file, or of several in a row."""
    buffer = io.BytesIO()
    for array in arrays:
        np.save(buffer, array, allow_pickle=False)
    return buffer.getvalue()


def decode_arrays(content: bytes, count: int) -> list[NDArray[Any]]:
    """What `encode_arrays` made of so many arrays. Raises ValueError."""
    source = io.BytesIO(content)
    try:
        arrays = [np.lib.format.read_array(source, allow_pickle=False) for _ in range(count)]
    except ARRAY_FAULTS as error:
        raise ValueError("no array" if count == 1 else "no arrays") from error
    if source.read(1):
        raise ValueError("more than is wanted")
    return arrays
