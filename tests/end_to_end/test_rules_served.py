"""What is measured offline is what is served: a run with rules, its bundle, and the service's engine."""

import json

import numpy as np

from model.contract.bundle import read_bundle
from model.contract.query import decode_answers, encode_question, stack_questions
from service.inference.engine import open_engine
from training.cli import main
from training.runs.run import Run

RECIPE = "[model]\nmax_length = 9\nwidth = 8\nlayers = 1\nrules_per_item = 5\n[train]\ndevice = 'cpu'\nepochs = 1\n"


def test_engine_ranks_as_the_evaluation(tmp_path):
    """Every test question, asked of the served graph, puts its target where the evaluation put it."""
    draw = np.random.default_rng(8)
    walks = [
        [f"i{item:02}" for item in (draw.integers(40) + np.cumsum(draw.choice([1, 1, 2, 3], size=size))) % 40]
        for size in draw.integers(3, 13, size=60)
    ]
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
    questions = [
        encode_question(bundle.vocabulary, history=walk[:-1], exclude=[], candidates=None, k=V, exclude_history=True)
        for walk in walks
    ]
    found = engine.rank(stack_questions(questions, max_length=9, mask_index=V + 1))
    answers = decode_answers(bundle.vocabulary, questions, *found)
    ranks = [answer.item_ids.index(walk[-1]) for answer, walk in zip(answers, walks, strict=True)]
    greater, ties = Run.open(run).read_ranks()
    assert not ties.any()
    assert ranks == greater.tolist()
