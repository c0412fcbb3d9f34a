"""NOVA: the paper's equations, nothing leaks at [mask], and the graph answers as the network does."""

from collections.abc import Sequence

import numpy as np
import pytest
import torch

from model.export.graph import export_network
from model.export.parity import ExportError, check_events, check_parity, make_golden
from model.export.rewrite import can_rewrite
from model.nets.features import SideInformation
from model.nets.nova import Fusor

NAMES = ("nova-bert", "nova-sasrec")
FUSIONS = ("add", "concat", "gate")
V = 60


def make_features(*, change=None):
    """Genres, up to three of five an item, and a year of four; `change` is an item whose values are others."""
    draw = np.random.default_rng(5)
    genres, years = np.zeros((V + 2, 3), np.int32), np.zeros((V + 2, 1), np.int32)
    for item in range(1, V + 1):
        chosen = draw.permutation(5)[: draw.integers(0, 4)] + 1
        genres[item, : len(chosen)] = chosen
        years[item] = draw.integers(0, 5)
    if change is not None:
        genres[change] = [5 - (genres[change][0] == 5), 0, 0]
        years[change] = years[change] % 4 + 1
    return [(torch.from_numpy(genres), 5), (torch.from_numpy(years), 4)]


@pytest.fixture
def make_nova(make_small):
    """A maker of small networks with genres and years."""

    def make(name="nova-bert", *, change=None, **switches):
        sizes = {"layers": 2, "heads": 2, **switches}
        return make_small(name, side=SideInformation(items=make_features(change=change)), **sizes)

    return make


@pytest.mark.parametrize(
    ("fusion", "by_hand"),
    [
        ("add", lambda vectors, _: sum(vectors)),
        ("concat", lambda vectors, fuse: torch.cat(vectors) @ fuse.joined.weight.T + fuse.joined.bias),
        ("gate", lambda vectors, fuse: sum(v / (1 + torch.exp(-(v @ fuse.gate[:, 0]))) for v in vectors)),
    ],
)
def test_fusors_follow_their_equations(fusion, by_hand):
    """Sum, fully connected over the concatenation, and gates sigmoid(F W^F), for one token at a time."""
    torch.manual_seed(1)
    fuse = Fusor(fusion, 3, 4)
    for parameter in fuse.parameters():
        torch.nn.init.normal_(parameter)
    vectors = [torch.randn(2, 5, 4), torch.randn(1, 5, 4), torch.randn(2, 5, 4)]
    fused = fuse(vectors)
    assert fused.shape == (2, 5, 4)
    for row in range(2):
        for place in range(5):
            of_token = [vector[min(row, len(vector) - 1), place] for vector in vectors]
            torch.testing.assert_close(fused[row, place], by_hand(of_token, fuse))


def test_side_information_moves_weights_and_never_values(make_nova):
    """A layer's values come from its input alone: with one key, what is known of it changes nothing at all."""
    layer = make_nova(fusion="add").layers[0]
    x, one = torch.randn(1, 4, 16), torch.zeros(1, 1, 1, 4, dtype=torch.bool)
    side, other = torch.randn(1, 4, 16), torch.randn(1, 4, 16)
    with torch.inference_mode():
        everything = one.logical_not()
        assert not torch.allclose(layer(x, everything, None, [side]), layer(x, everything, None, [other]))
        one[..., 2] = True
        torch.testing.assert_close(layer(x, one, None, [side]), layer(x, one, None, [other]))


@pytest.mark.parametrize("name", NAMES)
def test_without_side_information_it_is_the_plain_network(make_small, ask, name):
    """No columns, no positions, fused by a sum: the very scores of BERT4Rec and SASRec with the same weights."""
    nova = make_small(name, positions="none", fusion="add", layers=2, heads=2)
    plain = make_small(name.replace("nova-bert", "bert4rec").removeprefix("nova-"), positions="none")
    plain.load_state_dict(nova.state_dict())
    torch.testing.assert_close(ask(nova, [1, 2, 3], [4]), ask(plain, [1, 2, 3], [4]))


@pytest.mark.parametrize("fusion", FUSIONS)
@pytest.mark.parametrize("invasive", [False, True])
def test_what_is_known_of_a_hidden_item_is_hidden(make_nova, ask, fusion, invasive):
    """Another genre and year of the target change no score of the other items, nor its own, at [mask]."""
    target, history = 9, [3, 14, 15]
    before, after = (make_nova(change=change, fusion=fusion, invasive=invasive) for change in (None, target))
    torch.testing.assert_close(ask(before, history), ask(after, history), rtol=0, atol=0)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("invasive", [False, True])
def test_what_is_known_of_a_shown_item_counts(make_nova, ask, name, invasive):
    """The same change to an item of the history does change the scores: the test above could fail."""
    before, after = (make_nova(name, change=change, invasive=invasive) for change in (None, 14))
    assert not torch.allclose(ask(before, [3, 14, 15]), ask(after, [3, 14, 15]), atol=1e-3)


def test_no_trained_place_sees_what_is_known_of_its_target(make_nova):
    """In a window as training shows it, with masks in the middle, the states at them do not know the hidden items."""
    shown = torch.tensor([[3, V + 1, 15, V + 1, 20]])
    lengths = torch.tensor([5], dtype=torch.int32)
    states = []
    for change in (None, 9):
        with torch.inference_mode():
            states.append(make_nova(change=change).encode(shown, lengths))
    torch.testing.assert_close(*states, rtol=0, atol=0)


def test_no_place_of_the_causal_twin_sees_what_is_known_of_its_target(make_nova):
    """The state at a place ranks the item there: what is known of it enters the later places alone."""
    window, lengths = torch.tensor([[3, 14, 9, 15]]), torch.tensor([4], dtype=torch.int32)
    with torch.inference_mode():
        before, after = (make_nova("nova-sasrec", change=change).encode(window, lengths) for change in (None, 9))
    torch.testing.assert_close(before[:, :3], after[:, :3], rtol=0, atol=0)
    assert not torch.allclose(before[:, 3], after[:, 3], atol=1e-3)


def test_pad_and_mask_have_no_values(make_small):
    """Codes that would tell something of a hidden item are refused."""
    codes = torch.ones(V + 2, 1, dtype=torch.int32)
    with pytest.raises(ValueError, match=r"PAD and \[mask\] have no values"):
        make_small("nova-bert", side=SideInformation(items=[(codes, 1)]))


@pytest.mark.parametrize("name", NAMES)
def test_batched_histories_answer_as_single_ones(make_nova, ask, name):
    """Padding beside longer histories changes nothing."""
    network = make_nova(name)
    histories = [[1, 2, 3, 4, 5, 6, 7], [8], [], [9, 10, 11]]
    alone = torch.cat([ask(network, history) for history in histories])
    torch.testing.assert_close(ask(network, *histories), alone, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_composed_rows_are_an_items_own_and_its_features(make_nova, ask, vocabulary, name):
    """What is ranked, picked and read agrees, both parts learn, and one settled table answers the same."""
    network = make_nova(name, feature_embeddings=True, layers=1)
    every = torch.arange(V + 2)
    torch.testing.assert_close(network.rows, network.items.weight + network.embed_features(every))
    columns = torch.tensor([4, 0, 4])
    torch.testing.assert_close(network.pick_rows(columns), network.table[columns])
    torch.testing.assert_close(network.read_items(every), network.rows)
    network.pick_rows(columns).sum().backward()
    assert network.items.weight.grad[5].any()
    assert not network.items.weight.grad[6].any()
    assert network.portraits[0].values.weight.grad.any()

    histories = [[1, 2, 3], [7]]
    before = ask(network, *histories)
    network.settle()
    torch.testing.assert_close(ask(network, *histories), before, rtol=1e-5, atol=1e-5)
    assert network.rows is network.items.weight
    items = [vocabulary.decode(history) for history in histories]
    check_parity(export_network(network), make_golden(network, vocabulary, items), vocabulary, max_length=12)


@pytest.mark.parametrize("name", NAMES)
def test_some_places_alone_have_the_states_of_all(make_nova, name):
    """The last layer worked out at a few places gives what it gives when all are worked out."""
    network = make_nova(name)
    item_ids = torch.randint(1, V + 1, (3, 6), generator=torch.Generator().manual_seed(2))
    lengths, at = torch.tensor([6, 6, 6]), torch.tensor([[1, 5], [0, 3], [2, 4]])
    with torch.inference_mode():
        whole, some = network.encode(item_ids, lengths), network.encode(item_ids, lengths, at)
    torch.testing.assert_close(some, whole.gather(1, at[..., None].expand(-1, -1, 16)), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("name", "fusion", "invasive"),
    [
        ("nova-bert", "gate", False),
        ("nova-bert", "add", True),
        ("nova-sasrec", "concat", False),
        ("nova-sasrec", "gate", True),
    ],
)
def test_graph_answers_as_the_network(make_nova, vocabulary, name, fusion, invasive):
    """Features and fusions are inside the graph, whose inputs stay what they are. Two streams are never rewritten.

    An export takes seconds, and each layer more of them: two for one network that is rewritten and one that is not.
    """
    network = make_nova(name, fusion=fusion, invasive=invasive, layers=2 if fusion == "gate" else 1)
    assert can_rewrite(network) == invasive
    draw = np.random.default_rng(4)
    histories = [vocabulary.decode(draw.integers(1, V + 1, size=size).tolist()) for size in (1, 4, 11, 30)]
    check_parity(export_network(network), make_golden(network, vocabulary, histories), vocabulary, max_length=12)


def test_attention_weights_are_those_of_the_fused_tokens(make_nova):
    """What the heat map shows moves with the side information and sums to 1."""
    given = torch.tensor([[3, 14, V + 1]]), torch.tensor([3], dtype=torch.int32)
    with torch.inference_mode():
        before, after = (make_nova(change=change).weigh(*given)[0] for change in (None, 14))
    torch.testing.assert_close(before.sum(dim=-1), torch.ones(1, 2, 3))
    assert not torch.allclose(before, after, atol=1e-3)


EDGES = {"types": (), "values": (1.5, 2.5, 3.5, 4.5), "times": (1e3, 1e5, 1e7)}
TIMES = [10**12, 10**12 + 500, 0, 10**12 + 10**6]
ABOUT: dict[str, Sequence[float]] = {"types": [1, 2, 1, 3], "values": [3.0, np.nan, 5.0, 1.0], "times": TIMES}


@pytest.fixture
def make_told(make_small):
    """A maker of small networks that are told of events."""

    def make(name="nova-bert", **switches):
        sizes = {"layers": 2, "heads": 2, **switches}
        side = SideInformation(items=make_features(), events=EDGES, type_count=3)
        return make_small(name, side=side, **sizes)

    return make


def encode_told(network, item_ids, **changes):
    """The states (T, D) of one row of tokens with events, some of them changed: {input: {place: value}}."""
    told = {name: list(values) for name, values in ABOUT.items()}
    for name, places in changes.items():
        for place, value in places.items():
            told[name][place] = value
    kinds = {"types": torch.int32, "values": torch.float32, "times": torch.int64}
    events = [torch.tensor([told[name]], dtype=kinds[name]) for name in network.event_inputs]
    with torch.inference_mode():
        return network.encode(torch.tensor([item_ids]), torch.tensor([len(item_ids)]), None, *events)[0]


CHANGES = [{"types": 3}, {"values": 2.0}, {"times": 10**12 + 10**4}]


@pytest.mark.parametrize("change", CHANGES, ids=str)
def test_what_is_known_of_a_hidden_event_is_hidden(make_told, change):
    """The type, value or time of a hidden event tells nothing: no state changes, at [mask] or beside it."""
    network = make_told()
    changes = {name: {1: value} for name, value in change.items()}
    tokens = [3, V + 1, 15, V + 1]
    torch.testing.assert_close(
        encode_told(network, tokens), encode_told(network, tokens, **changes), rtol=0, atol=0, equal_nan=False
    )


@pytest.mark.parametrize("change", CHANGES, ids=str)
def test_what_is_known_of_a_shown_event_counts(make_told, change):
    """The same change beside a shown item changes the state at [mask]: the test above could fail."""
    network = make_told()
    changes = {name: {1: value} for name, value in change.items()}
    tokens = [3, 9, 15, V + 1]
    assert not torch.allclose(encode_told(network, tokens)[-1], encode_told(network, tokens, **changes)[-1], atol=1e-4)


@pytest.mark.parametrize("change", CHANGES, ids=str)
def test_the_causal_twin_sees_events_of_earlier_places_alone(make_told, change):
    """What is known of the event at a place enters later places, never its own."""
    network = make_told("nova-sasrec")
    changes = {name: {1: value} for name, value in change.items()}
    before, after = encode_told(network, [3, 9, 15, 20]), encode_told(network, [3, 9, 15, 20], **changes)
    torch.testing.assert_close(before[:2], after[:2], rtol=0, atol=0)
    assert not torch.allclose(before[2:], after[2:], atol=1e-4)


def test_gaps_are_between_neighbours_that_are_known(make_told):
    """A gap needs both times: shifting a whole history changes nothing, and an unknown time makes two gaps unknown."""
    network = make_told()
    tokens = [3, 9, 15, 20]
    shift = {place: time and time + 10**9 for place, time in enumerate(TIMES)}
    torch.testing.assert_close(encode_told(network, tokens, times=shift), encode_told(network, tokens))
    gaps = network.readers[2]
    told = torch.tensor([[7, 7 + 999, 7 + 999 + 1000, 0, 10**9]])
    shown = torch.ones(1, 5, dtype=torch.bool)
    with torch.inference_mode():
        torch.testing.assert_close(gaps(told, shown)[0], gaps.values.weight[[0, 1, 2, 0, 0]])


def test_values_fall_into_buckets_and_none_has_its_own(make_told):
    """An edge begins its bucket; NaN is no value."""
    values = make_told().readers[1]
    told = torch.tensor([[1.0, 1.5, 5.0, float("nan")]])
    with torch.inference_mode():
        torch.testing.assert_close(
            values(told, torch.ones(1, 4, dtype=torch.bool))[0], values.values.weight[[1, 2, 5, 0]]
        )


@pytest.mark.parametrize("name", NAMES)
def test_it_answers_without_events(make_told, ask, name):
    """No events at all are events of which nothing is known."""
    network = make_told(name)
    given = torch.tensor([[3, 9, V + 1]]), torch.tensor([3])
    nothing = [
        torch.zeros(1, 3, dtype=torch.int32),
        torch.full((1, 3), torch.nan),
        torch.zeros(1, 3, dtype=torch.int64),
    ]
    with torch.inference_mode():
        torch.testing.assert_close(network(*given), network(*given, *nothing))
    assert torch.isfinite(ask(network, [])).all()


def test_training_goes_without_events_now_and_then(make_told):
    """With a dropout of 1 no event is ever seen in training, and all are when it is over."""
    network = make_told(event_dropout=1.0, dropout=0.0).train()
    assert torch.equal(encode_told(network, [3, 9, 15, 20]), encode_told(network, [3, 9, 15, 20], types={0: 2}))
    network.eval()
    assert not torch.equal(encode_told(network, [3, 9, 15, 20]), encode_told(network, [3, 9, 15, 20], types={0: 2}))


@pytest.mark.parametrize("name", NAMES)
def test_graph_is_told_of_events(make_told, vocabulary, monkeypatch, name):
    """The optional inputs are in the graph, which answers as the network does, with events and without.

    An input of which nothing was learned, so that it has one bucket, is among them.
    """
    monkeypatch.setitem(EDGES, "times", ())
    network = make_told(name, layers=1)
    graph = export_network(network)
    draw = np.random.default_rng(4)
    histories = [draw.integers(1, V + 1, size=size).tolist() for size in (1, 4, 11, 30)]
    check_events(graph, network, vocabulary, histories, type_count=3)
    examples = make_golden(network, vocabulary, [vocabulary.decode(history) for history in histories])
    check_parity(graph, examples, vocabulary, max_length=12, inputs=network.event_inputs)
    other = make_told(name, layers=1)
    with torch.no_grad():
        other.readers[0].values.weight.mul_(-1)
    with pytest.raises(ExportError, match="disagree about histories with events"):
        check_events(graph, other, vocabulary, histories, type_count=3)
