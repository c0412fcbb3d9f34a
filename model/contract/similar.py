"""The optional graph that ranks the items most like some others, by the cosines of their rows in the item table.

A bundle has both files or none; a service that does not know them leaves them alone:

```
similar.onnx          inputs and outputs of network.onnx (model/export/graph.py), and CANDIDATE_ROWS
similar_golden.json   questions with their answers, as golden.json
```
The history of a question holds the items that the answer is to be like. An item's score is the mean of its cosines with
them, an item that is asked twice counting twice; nothing of the order matters.
"""

from collections.abc import Mapping
from typing import NamedTuple

from model.contract.golden import Golden, golden_from_bytes
from model.contract.manifest import BundleFormat

SIMILAR = "similar.onnx"
SIMILAR_GOLDEN = "similar_golden.json"

MAX_ASKED = 10
"""How many items a question may name."""
MAX_LENGTH = MAX_ASKED + 1
"""Tokens of a row: [mask] ends every one."""
CANDIDATE_ROWS = "candidate_rows"
"""The output (B, S, D) float32: the rows of SCORED (query.py), of length 1, or 0 for an item whose row is 0 there."""


class SimilarGraph(NamedTuple):
    """The graph and its golden examples."""

    network: bytes
    golden: tuple[Golden, ...]


def find_similar(contents: Mapping[str, bytes]) -> SimilarGraph | None:
    """The graph among a bundle's files, or None. Raises BundleFormat for one file without the other, or no examples."""
    if SIMILAR not in contents and SIMILAR_GOLDEN not in contents:
        return None
    if SIMILAR not in contents or SIMILAR_GOLDEN not in contents:
        raise BundleFormat(f"the manifest lists one of {SIMILAR} and {SIMILAR_GOLDEN} without the other")
    try:
        return SimilarGraph(contents[SIMILAR], golden_from_bytes(contents[SIMILAR_GOLDEN]))
    except BundleFormat as error:
        raise BundleFormat(f"{SIMILAR_GOLDEN} is not what it should be: {error}") from error
