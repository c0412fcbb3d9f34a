"""A small network with weights large enough that answers differ."""

import pytest
import torch

from model.contract.vocabulary import Vocabulary
from model.nets.bert4rec import Bert4Rec, Bert4RecConfig

torch.set_num_threads(1)  # networks this small are slower on two threads, and far slower on a busy machine


@pytest.fixture(scope="session")
def vocabulary():
    """Sixty items whose ids sort as text, not as numbers."""
    return Vocabulary.from_items(f"i{number}" for number in range(60))


@pytest.fixture(scope="session")
def network(vocabulary):
    """BERT4Rec with two layers and a window of twelve."""
    torch.manual_seed(7)
    network = Bert4Rec(Bert4RecConfig(item_count=len(vocabulary), max_length=12, width=16, layers=2, heads=2))
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.normal_(std=0.4)
    return network.eval()
