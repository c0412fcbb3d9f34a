"""Which small neighbouring segments become one."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from model.contract.event_archive import Segment

MERGED_BYTES: Final = 32 * 2**20
"""Maximum bytes of a merged segment's records, before compression. A merge holds them in memory."""
MERGED_AT: Final = 4
"""Minimum number of neighbours to merge. Each merge writes all of them anew."""


def plan_merges(segments: Sequence[Segment]) -> list[list[Segment]]:
    """Groups of neighbours to merge. They have similar sizes, so that few records are written anew often."""
    groups: list[tuple[list[Segment], int]] = []
    for segment in segments if len(segments) >= MERGED_AT else []:
        groups.append(([segment], _measure(segment.path)))
        while len(groups) > 1:
            (left, left_bytes), (right, right_bytes) = groups[-2:]
            if left_bytes > 2 * right_bytes or left_bytes + right_bytes > MERGED_BYTES:
                break
            groups[-2:] = [([*left, *right], left_bytes + right_bytes)]
    return [group for group, _ in groups if len(group) >= MERGED_AT]


def _measure(path: Path) -> int:
    """Bytes of a segment's records, from the last four bytes of the file (RFC 1952). Too large if it is unreadable."""
    try:
        with path.open("rb") as file:
            file.seek(-4, os.SEEK_END)
            return max(1, int.from_bytes(file.read(4), "little"))
    except OSError:
        return MERGED_BYTES + 1
