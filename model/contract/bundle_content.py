"""What the small files of a bundle hold: counts, metadata and event types, in bytes and back."""

import json
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from model.contract.id_rule import is_valid_id
from model.contract.npy import decode_arrays, encode_arrays
from model.contract.vocabulary import Vocabulary


def encode_counts(counts: NDArray[np.int64]) -> bytes:
    """The content of counts.npy."""
    return encode_arrays(counts.astype(np.int64))


def decode_counts(content: bytes, item_count: int) -> NDArray[np.int64]:
    """What `encode_counts` wrote for so many items. Raises ValueError."""
    counts: NDArray[np.int64] = decode_arrays(content, 1)[0]
    if counts.shape != (item_count,) or counts.dtype != np.int64 or counts.min() < 0:
        raise ValueError("not one int64 of at least 0 for each item")
    return counts


def encode_metadata(vocabulary: Vocabulary, metadata: Mapping[str, Mapping[str, object]]) -> bytes:
    """The content of metadata.jsonl: one JSON object an item, empty where nothing is known."""
    lines = (json.dumps(metadata.get(item_id, {}), allow_nan=False) for item_id in vocabulary.item_ids)
    return ("\n".join(lines) + "\n").encode()


def encode_types(event_types: Sequence[str]) -> bytes:
    """The content of event_types.txt."""
    return "".join(f"{name}\n" for name in event_types).encode("ascii")


def decode_types(content: bytes) -> tuple[str, ...]:
    """What `encode_types` wrote. Raises ValueError."""
    try:
        event_types = tuple(content.decode("ascii").splitlines())
    except UnicodeDecodeError as error:
        raise ValueError("ASCII") from error
    if not all(map(is_valid_id, event_types)) or len(set(event_types)) != len(event_types):
        raise ValueError("one valid type a line, each once")
    return event_types
