"""A log in which nothing but the time that has passed tells what follows."""

import numpy as np
import pytest
import torch

from model.nets.network import SequenceNetwork
from model.nets.registry import make_network
from training.data.histories import Histories
from training.data.split import Questions
from training.evaluation.metrics import average
from training.evaluation.ranking import NetworkScorer, evaluate
from training.fit.batches import Samples
from training.fit.losses import measure_loss
from training.recipe import TrainRecipe

USERS, KINDS = 512, 8
SOON_MS, LATE_MS = 60_000, 10 * 86_400_000
RECIPE = TrainRecipe(batch_size=32, last_item_share=1.0)
BEGINS = {"sasrec": (0.02, 0.02), "bert4rec": (0.1, 0.003)}
"""The deviation of the weights and the learning rate with which so few steps are enough."""


@pytest.fixture(scope="module")
def log():
    """Pairs: one of eight items, and by a coin what follows it after a minute, or what follows it after ten days."""
    draw = np.random.default_rng(5)
    first, late = draw.integers(1, KINDS + 1, USERS), draw.integers(2, size=USERS)
    items = np.stack([first, first + KINDS * (1 + late)], axis=1).astype(np.int32).flatten()
    began_ms = 1_700_000_000_000 + draw.integers(10**9, size=USERS)
    times_ms = np.stack([began_ms, began_ms + np.where(late, LATE_MS, SOON_MS)], axis=1).flatten()
    return items, times_ms


def learn(name, histories, times_ms, *, told):
    """A small network after twelve epochs on histories, told the time between events or not."""
    torch.manual_seed(1)
    sizes = {"max_length": 4, "width": 32, "layers": 1, "heads": 2, "dropout": 0.0, "relative_time": told}
    network = make_network(name, item_count=3 * KINDS, **sizes)
    assert isinstance(network, SequenceNetwork)
    events = [times_ms] if told else []
    samples = Samples(histories, RECIPE, max_length=4, item_count=3 * KINDS, causal=network.causal, events=events)
    deviation, rate = BEGINS[name]
    for parameter in (parameter for parameter in network.parameters() if parameter.dim() > 1):
        torch.nn.init.normal_(parameter, std=deviation)
    optimizer = torch.optim.Adam(network.parameters(), rate)
    for epoch in range(12):
        for step, windows in enumerate(samples.plan_epoch(epoch)):
            optimizer.zero_grad()
            batch = samples.make_batch(windows, epoch, step)
            (measure_loss(network, batch, torch.device("cpu"), RECIPE) / len(batch.targets)).backward()
            optimizer.step()
    return NetworkScorer(network, events=events)


@pytest.mark.parametrize("name", BEGINS)
def test_only_who_knows_the_time_knows_the_answer(log, name):
    """Told it, every first place is right; without it half of them, since a coin decided; nor when it is not asked."""
    items, times_ms = log
    starts = np.arange(0, 2 * USERS, 2)
    known, asked = slice(0, USERS // 2), slice(USERS // 2, USERS)
    train = Histories(items, starts, starts + 2).select(known)
    questions = Questions(Histories(items, starts, starts + 1, times_ms[1::2]).select(asked), items[1::2][asked])
    timeless = Questions(Histories(items, starts, starts + 1).select(asked), items[1::2][asked])
    found = {told: learn(name, train, times_ms, told=told) for told in (True, False)}
    assert average(evaluate(found[True], questions))["HR@1"] > 0.98
    for scorer, without in ((found[False], questions), (found[True], timeless)):
        assert average(evaluate(scorer, without))["HR@1"] == pytest.approx(0.5, abs=0.1)
