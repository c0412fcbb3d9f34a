"""A network that knows the time between events is the same in its graph, which a service feeds with times."""

import numpy as np
import pytest
import torch

from model.export.graph import export_network
from model.export.parity import ExportError, check_events
from model.export.rewrite import can_rewrite


@pytest.fixture(scope="module")
def histories(vocabulary):
    """Sixty histories of random items, from empty to far beyond the window."""
    draw = np.random.default_rng(3)
    return [draw.integers(1, len(vocabulary) + 1, size=size).tolist() for size in draw.integers(0, 30, size=60)]


def test_the_graph_answers_as_the_network(make_small, vocabulary, histories):
    """In one padded batch, with times drawn from a second to years, some absent, some questions without their own.

    That SASRec's does, too, is what publishing one proves (tests/end_to_end/test_times_served.py).
    """
    network = make_small("bert4rec", relative_time=True, layers=1, positions="relative")
    assert not can_rewrite(network)
    graph = export_network(network)
    check_events(graph, network, vocabulary, histories, type_count=0)
    with torch.no_grad():
        network.layers[0].time_bias.earlier.mul_(1.5)
    with pytest.raises(ExportError, match="histories with events"):
        check_events(graph, network, vocabulary, histories, type_count=0)
