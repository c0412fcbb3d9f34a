"""An answer's way from pools of ranked items to its list: diversity and caps pick from them, then pins are placed.

Whoever ranks is asked up to ROUNDS times: for the best items, then, while diversity and caps have not picked enough of
them, for the best behind those. With boosts it is asked for the best of each set, which are merged to a pool. Pins take
no part in that, and count towards no cap.
"""

from collections.abc import Callable, Sequence
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from model.contract.query import Answer, Question
from model.contract.vocabulary import Vocabulary
from service.business_rules.boosts import BoostedSet, Pool, ask_each, merge_sets
from service.business_rules.caps import Cap
from service.business_rules.diversity import Scale, pick_diverse
from service.business_rules.pins import place_pins

ROUNDS = 3
POOL = 500
"""Most items of a pool."""
POOL_FACTOR = 10
"""Items of a pool for each one that is wanted, up to POOL."""

_NONE = np.empty(0, dtype=np.int32)
FindRows = Callable[[NDArray[np.int32]], NDArray[np.float32] | None]


class Arrangement:
    """The rules of one question. Ask whoever ranks what `ask` says, until it is `complete`."""

    def __init__(
        self,
        question: Question,
        vocabulary: Vocabulary,
        *,
        boosted: Sequence[BoostedSet] = (),
        pins: Sequence[tuple[int, int]] = (),
        cap: Cap | None = None,
        diversity: float = 0.0,
        find_rows: FindRows = lambda _indexes: None,
    ) -> None:
        """Take the question as it would be asked without rules.

        `boosted` are disjoint, and together what the question allows; without boosts there are none. `pins` are ranks
        and indexes: those of items that may not be answered, or are unknown, are left out. `diversity` is from 0 to 1,
        and `find_rows` gives the rows (n, D), of length 1, of items by index, or None if it cannot: then the order
        stays.
        """
        self._question = question
        self._vocabulary = vocabulary
        self._boosted = boosted
        self._pins = {index: rank for rank, index in pins if _may_answer(question, index, len(vocabulary))}
        self._scores: dict[int, float] = {}
        """Of pins."""
        self._cap = cap
        self._diversity = diversity
        self._find_rows = find_rows
        self._most = question.k - len(self._pins)
        deep = POOL_FACTOR * question.k if cap is not None or diversity else self._most
        self._pool = min(deep, POOL, len(vocabulary))
        self._seen: list[NDArray[np.int32]] = [np.fromiter(self._pins, dtype=np.int32, count=len(self._pins))]
        self._picked: list[tuple[int, float]] = []
        self._rows: list[NDArray[np.float64]] = []
        """Of what is picked, where diversity counts."""
        self._scale: Scale | None = None
        self._rounds = 0
        self._exhausted = False

    @property
    def complete(self) -> bool:
        """Whether there is no more to ask."""
        if self._rounds == 0:
            return False
        return self._exhausted or self._rounds == ROUNDS or len(self._picked) >= self._most

    def ask(self) -> list[Question]:
        """What to ask next, at least one question: for the pins' scores, the first time, and for a pool."""
        questions: list[Question] = []
        if self._pins and not self._rounds:
            pins = self._seen[0]
            questions.append(self._question._replace(exclude=_NONE, candidates=pins, k=len(pins)))
        if self._most > 0:
            exclude = np.concatenate([self._question.exclude, *self._seen])
            questions += ask_each(self._question._replace(exclude=exclude, k=self._pool), self._boosted)
        return questions

    def take(self, answers: Sequence[Answer]) -> None:
        """Take the answers to what `ask` asked, in order."""
        pending = list(answers)
        if self._pins and not self._rounds:
            pins, scores = self._decode(pending.pop(0))
            self._scores = dict(zip(pins.tolist(), scores, strict=True))
        self._rounds += 1
        if not pending:
            return
        pool = merge_sets([*map(self._decode, pending)], self._boosted, most=self._pool)
        self._exhausted = len(pool.indexes) < self._pool
        self._pick(pool)

    def finish(self) -> Answer:
        """The list: at most k items, pins at their ranks, with the scores that whoever ranks gave them."""
        pins = [(rank, (index, self._scores[index])) for index, rank in self._pins.items() if index in self._scores]
        placed = place_pins(self._picked, pins)
        return Answer(self._vocabulary.decode(index for index, _ in placed), [score for _, score in placed])

    def _admit(self, index: int) -> bool:
        return self._cap is None or self._cap.admit(index)

    def _decode(self, answer: Answer) -> tuple[NDArray[np.int32], list[float]]:
        return self._vocabulary.encode(answer.item_ids), answer.scores

    def _pick(self, pool: Pool) -> None:
        """Pick from a pool what diversity and cap let through."""
        self._seen.append(pool.indexes)
        left = self._most - len(self._picked)
        rows = self._find_rows(pool.indexes) if self._diversity and len(pool.indexes) else None
        if rows is None:
            admitted = (place for place, index in enumerate(pool.indexes.tolist()) if self._admit(index))
            places = list(islice(admitted, left))
        else:
            places = self._pick_diverse(pool, rows.astype(np.float64), left)
        self._picked += [(int(pool.indexes[place]), pool.scores[place]) for place in places]

    def _pick_diverse(self, pool: Pool, rows: NDArray[np.float64], left: int) -> list[int]:
        given = np.array(pool.values, dtype=np.float64)
        self._scale = self._scale or Scale.of(given)
        places = pick_diverse(
            self._scale.read(given),
            rows,
            np.array(self._rows),
            strength=self._diversity,
            most=left,
            admit=lambda place: self._admit(int(pool.indexes[place])),
        )
        self._rows += list(rows[places])
        return places


def _may_answer(question: Question, index: int, item_count: int) -> bool:
    """Whether an item is known and neither excluded nor outside what may be answered."""
    return (
        1 <= index <= item_count
        and index not in question.exclude
        and (question.candidates is None or index in question.candidates)
        and (question.allowed is None or bool(question.allowed.mask[index]))
    )
