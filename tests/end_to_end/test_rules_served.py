"""What is measured offline is what is served: a run with rules, its bundle, and the service's engine.

Of users whose history was counted the evaluation leaves it out, and the service does not; so they are asked both ways.
"""

import json

import numpy as np

from model.contract.bundle import read_bundle
from model.contract.query import decode_answers, encode_question, stack_questions
from service.inference.engine import open_engine
from training.cli import main
from training.data.histories import Histories
from training.data.split import Questions, leave_one_out
from training.evaluation.ranking import rank_targets
from training.logs.reader import read_log
from training.recipe import DataRecipe
from training.runs.evaluate import make_scorer
from training.runs.run import Run

RECIPE = "[model]\nmax_length = 9\nwidth = 8\nlayers = 1\nrules_per_item = 5\n[train]\ndevice = 'cpu'\nepochs = 1\n"


def walk(draw, users):
    """Histories that go on by one, two or three round a ring of 40 items."""
    return [
        [f"i{item:02}" for item in (draw.integers(40) + np.cumsum(draw.choice([1, 1, 2, 3], size=size))) % 40]
        for size in draw.integers(3, 13, size=users)
    ]


def test_engine_ranks_as_the_evaluation(tmp_path):
    """The served graph puts every target where the run's scorer puts it, of users it counted and of others."""
    draw = np.random.default_rng(8)
    walks, strangers = walk(draw, 60), walk(draw, 30)
    rows = [
        f"u{user:02},{item},{1_700_000_000 + step}" for user, walk in enumerate(walks) for step, item in enumerate(walk)
    ]
    (tmp_path / "log.csv").write_text("\n".join(["user,item,timestamp", *rows]) + "\n")
    (tmp_path / "small.toml").write_text(RECIPE)
    run = tmp_path / "run"
    assert main(["fit", str(tmp_path / "small.toml"), "--data", str(tmp_path / "log.csv"), "--out", str(run)]) == 0
    assert main(["publish", str(run), "--out", str(tmp_path / "bundles")]) == 0

    results = json.loads((run / "results.json").read_text())
    assert results["rules"]["strength"] > 0
    bundle = read_bundle(tmp_path / "bundles")
    assert bundle.manifest.name == "bert4rec-rules"
    assert bundle.manifest.metrics["NDCG@10"] == results["models"]["bert4rec-rules"]["NDCG@10"]["value"]
    V = bundle.manifest.item_count
    engine = open_engine(bundle.network, item_count=V, provider="cpu", threads=1)

    def serve(histories):
        questions = [
            encode_question(bundle.vocabulary, history=it[:-1], exclude=[], candidates=None, k=V, exclude_history=True)
            for it in histories
        ]
        found = engine.rank(stack_questions(questions, max_length=9, mask_index=V + 1))
        answers = decode_answers(bundle.vocabulary, questions, *found)
        return [answer.item_ids.index(it[-1]) for answer, it in zip(answers, histories, strict=True)]

    log = read_log(tmp_path / "log.csv", DataRecipe())
    split = leave_one_out(log)
    served = make_scorer(Run.open(run), log, split, leave_own_out=False)
    assert serve(walks) == rank_targets(served, split.test).greater.tolist()
    assert results["served"]["HR@10"]["value"] == np.mean([rank < 10 for rank in serve(walks)])

    evaluated = make_scorer(Run.open(run), log, split)
    greater, ties = Run.open(run).read_ranks()
    assert greater.tolist() == rank_targets(evaluated, split.test).greater.tolist() != serve(walks)
    assert not ties.any()
    flat = bundle.vocabulary.encode([item for it in strangers for item in it]).astype(np.int32)
    ends = np.cumsum([len(it) for it in strangers])
    asked = Questions(Histories(flat, ends - [len(it) for it in strangers], ends - 1), flat[ends - 1])
    assert serve(strangers) == rank_targets(evaluated, asked).greater.tolist()
