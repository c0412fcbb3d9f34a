"""The judge's figures are those of a plain model: for each event its rank under the history before it."""

import math
import random
from bisect import insort

import pytest

from model.contract.bundle import read_bundle
from model.contract.deployment.live_scores import read_live_scores
from model.contract.deployment.live_sums import Series, Sums
from model.contract.query import encode_question
from service.inference.model import load_model
from service.store.event import make_event

CHAMPION, CANDIDATE = "20261121T101500-tiny", "20261122T101500-other"
LENGTH = 6
START_MS = 1_763_719_498_000


class PlainJudge:
    """Says it all slowly: one question after another, over histories in lists."""

    def __init__(self, root, versions):
        self.models = {
            version: load_model(root / version, provider="cpu", threads=1, max_batch=1) for version in versions
        }
        self.sums = {version: Sums() for version in versions}

    def judge(self, history, item_id):
        for version, model in self.models.items():
            question = encode_question(
                model.vocabulary, history=history, exclude=(), candidates=None, k=100, exclude_history=True
            )
            answer = model.rank([question])[0] if len(question.history) else model.rank_popular(question)
            rank = answer.item_ids.index(item_id) + 1 if item_id in answer.item_ids else math.inf
            self.sums[version].add(
                Sums(
                    trials=1,
                    hits=int(rank <= 10),
                    ndcg=1 / math.log2(rank + 1) if rank <= 10 else 0.0,
                    mrr=1 / rank if rank <= 100 else 0.0,
                    unknown=int(item_id not in model.vocabulary),
                )
            )


def make_events(draw, items, count):
    """Events in order of arrival: some old, some of items that nobody knows, some of items seen before."""
    events = []
    for number in range(count):
        at_ms = START_MS + 1000 * number - draw.choice([0, 0, 0, 3_500, 40_000])
        events.append(
            make_event(
                user_id=f"u{draw.randrange(12)}",
                item_id=draw.choice([*items, "nobody-knows", "i05", "i05x"]),
                event_type=draw.choice(["view", "view", "cart"]),
                event_id=f"e{number}",
                timestamp_ms=at_ms,
                now_ms=at_ms,
            )
        )
    return events


def expect(plain, events, erased_from):
    """What the events come to: histories as the store keeps them, but in lists. The last LENGTH are remembered."""
    skipped = dict.fromkeys(("seen", "late", "erased"), 0)
    histories: dict[str, list] = {}
    for event in events:
        entries = histories.setdefault(event.user_id, [])
        insort(entries, (event.timestamp_ms, event), key=lambda entry: entry[0])
        del entries[:-LENGTH]
    for event in events:
        entries = [] if event.user_id in erased_from else histories[event.user_id]
        place = next((place for place, (_, found) in enumerate(entries) if found is event), None)
        if not entries:
            skipped["erased"] += 1
        elif place is None:
            skipped["late"] += 1
        elif event.item_id in (before := [found.item_id for _, found in entries[:place]]):
            skipped["seen"] += 1
        else:
            plain.judge(before, event.item_id)
    return skipped


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.usefixtures("candidate")
def test_figures_are_those_of_a_plain_model(with_judge, root, seed, raw):
    """With late, erased, repeated and unknown events among them, whatever is judged together."""
    draw = random.Random(seed)  # noqa: S311 - reproducible
    events = make_events(draw, read_bundle(root).vocabulary.item_ids, 300)
    erased = {"u3"}

    async def scenario(bench):
        for start in range(0, len(events), 50):
            await bench.store.append(events[start : start + 50])
            await bench.store.append(events[start : start + 5])  # again: duplicates are no events
        for key in raw.scan_iter("nextitem:history:*:u3"):
            raw.delete(key)  # as an erasure does between the log's reading and the history's
        await bench.judge.run_once()
        return bench.scores

    scores = with_judge(scenario, history_length=LENGTH)
    plain = PlainJudge(root, [CHAMPION, CANDIDATE])
    skipped = expect(plain, events, erased)
    assert all(skipped.values())
    assert {reason: count for reason, count in scores.skipped.items() if count} == skipped
    for series in (Series("champion", CHAMPION), Series("candidate", CANDIDATE)):
        found = scores.totals[series]
        assert found.to_list() == pytest.approx(plain.sums[series.version].to_list())
        assert 0 < found.unknown < found.trials
        assert 0 < found.hits < found.trials
        assert scores.sum_hours(series.version).to_list() == pytest.approx(found.to_list())
    assert scores.events == len(events)
    written = read_live_scores(root)
    assert written is not None
    assert written.totals.keys() == scores.totals.keys()
