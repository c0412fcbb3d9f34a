"""Turns a question's mask into what costs least: candidates if it leaves few items, exclusions if it takes few away.

What costs what is in docs/lab/2026-11-23-filtered-answers.md. All ways give the same answer.
"""

from typing import Literal

import numpy as np

from model.contract.allowed import Allowed
from model.contract.query import Question
from service.inference.reranking import count_few

Plan = Literal["none", "candidates", "exclude", "mask"]

FEW_CANDIDATES = 128
"""So many candidates cost less than a mask in the scan, too."""
FEW_EXCLUSIONS = 300
ITEMS_PER_EXCLUSION = 32
"""So many exclusions cost less than a mask, or one for so many items of the catalogue."""


def plan_of(allowed: Allowed | None) -> Plan:
    """How a question with this mask is answered, if it names no candidates itself."""
    if allowed is None or not allowed.forbidden_count:
        return "none"
    if allowed.count <= max(FEW_CANDIDATES, count_few(allowed.item_count)):
        return "candidates"
    few = max(FEW_EXCLUSIONS, allowed.item_count // ITEMS_PER_EXCLUSION)
    return "exclude" if allowed.forbidden_count <= few else "mask"


def apply_mask(question: Question, *, takes_masks: bool) -> Question:
    """The same question, with a mask only where the graph `takes_masks` and one is the cheapest way.

    The candidates of a question are cut to what its mask allows. A graph that takes no masks is given the shorter list
    of candidates or exclusions, however long it is.
    """
    allowed = question.allowed
    if allowed is None:
        return question
    if question.candidates is not None:
        return question._replace(candidates=question.candidates[allowed.mask[question.candidates]], allowed=None)
    plan = plan_of(allowed)
    if plan == "mask" and not takes_masks:
        plan = "candidates" if allowed.count <= allowed.forbidden_count else "exclude"
    if plan == "mask":
        return question
    if plan == "candidates":
        return question._replace(candidates=allowed.indexes, allowed=None)
    if plan == "exclude":
        return question._replace(exclude=np.concatenate([question.exclude, allowed.forbidden]), allowed=None)
    return question._replace(allowed=None)
