"""The time between events in attention: what is learned at octaves, what is between, and what no time can change."""

import pytest
import torch

from model.contract.sequence import encode_histories
from model.nets.features import SideInformation
from model.nets.relative_time import OCTAVES, TimeBias, measure_elapsed

NOW_MS = 1_763_719_498_000
DAY_MS = 86_400_000
SWITCHES = [{}, {"positions": "relative"}, {"positions": "none"}]


@pytest.fixture
def make_timed(make_small):
    """A maker of networks with time in attention, whose times count a lot."""

    def make(name, **switches):
        return make_small(name, relative_time=True, **switches)

    return make


def read(network, *histories, asked_ms=NOW_MS):
    """Histories of (item, milliseconds before NOW_MS) and the time of the question as the network's inputs."""
    item_ids, lengths = encode_histories(
        [[item for item, _ in history] for history in histories], max_length=12, mask_index=network.item_count + 1
    )
    times = torch.zeros(item_ids.shape, dtype=torch.int64)
    times[:, -1] = asked_ms
    for row, history in zip(times, histories, strict=True):
        for place, (_, ago_ms) in enumerate(history):
            row[len(row) - 1 - len(history) + place] = NOW_MS - ago_ms
    return torch.from_numpy(item_ids), torch.from_numpy(lengths), times


HISTORY = [(3, 40 * DAY_MS), (9, 2 * DAY_MS), (4, 60_000), (7, 5_000)]


def test_the_bias_is_a_line_through_what_the_octaves_learned():
    """Sums of steps at 1, 3 and 7 seconds, halfway between two the mean, 0 at no time, another number where unknown."""
    bias = TimeBias(heads=1)
    with torch.no_grad():
        for parameter in bias.parameters():
            parameter.zero_()
        bias.earlier[0, :3] = torch.tensor([1.0, 10.0, 100.0])
        bias.later[0, :2] = torch.tensor([-1.0, -10.0])
        bias.unknown.fill_(7.0)
    halfway = 2**1.5 - 1
    seconds = torch.tensor([0, 1, 3, 7, halfway, 1e9, -1, -3], dtype=torch.float64)
    came = NOW_MS - (1000 * seconds).long()
    elapsed = measure_elapsed(torch.full((1, len(came)), NOW_MS), came[None], causal=False)
    wanted = [0, 1, 11, 111, 6, 111, -1, -11]
    torch.testing.assert_close(bias(elapsed)[0, 0, 0], torch.tensor(wanted, dtype=torch.float32), atol=0.02, rtol=0)
    unknown = measure_elapsed(torch.tensor([[0, NOW_MS]]), torch.tensor([[NOW_MS, 0]]), causal=False)
    assert bias(unknown)[0, 0].tolist() == [[7, 7], [0, 7]]
    assert bias(measure_elapsed(torch.tensor([[NOW_MS]]), torch.tensor([[NOW_MS + 9_000]]), causal=True)).item() == 0


def test_times_beyond_every_octave_are_the_last_one():
    """No index leaves the table, however far apart two times are."""
    far = torch.tensor([[1, 2**62]])
    elapsed = measure_elapsed(far, far, causal=False)
    assert elapsed.octave.flatten().tolist() == [OCTAVES, 0, 2 * OCTAVES - 1, OCTAVES]
    assert elapsed.above.flatten().tolist() == [0, 0, 1, 0]


@pytest.mark.parametrize("name", ["bert4rec", "sasrec", "nova-bert", "nova-sasrec"])
def test_only_differences_of_known_times_matter(make_timed, name):
    """A clock that is a year off changes no score; another gap does, and so does not knowing."""
    network = make_timed(name)
    assert network.event_inputs == ("times",)
    item_ids, lengths, times = read(network, HISTORY)
    with torch.inference_mode():
        scores = network(item_ids, lengths, times)
        torch.testing.assert_close(network(item_ids, lengths, times + 365 * DAY_MS), scores, atol=1e-4, rtol=1e-4)
        later = times.clone()
        later[:, -1] += 30 * DAY_MS
        assert (network(item_ids, lengths, later) - scores).abs().max() > 0.01
        unknown = network(item_ids, lengths, torch.zeros_like(times))
        assert (unknown - scores).abs().max() > 0.01
        torch.testing.assert_close(network(item_ids, lengths), unknown)


@pytest.mark.parametrize("switches", SWITCHES, ids=str)
@pytest.mark.parametrize("name", ["bert4rec", "sasrec"])
def test_batched_and_padded_is_single(make_timed, name, switches):
    """Each history alone has the scores that it has beside longer ones."""
    network = make_timed(name, **switches)
    histories = [HISTORY, HISTORY[:1], [], [(item, item * 1_000) for item in range(11, 0, -1)]]
    with torch.inference_mode():
        together = network(*read(network, *histories))
        for history, scores in zip(histories, together, strict=True):
            torch.testing.assert_close(network(*read(network, history))[0], scores, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("name", ["bert4rec", "sasrec"])
def test_some_places_are_those_of_all_places(make_timed, name):
    """The last layer at a few places alone gives what it gives at all of them."""
    network = make_timed(name, positions="relative")
    item_ids, lengths, times = read(network, HISTORY, HISTORY[2:])
    at = torch.tensor([[1, 4], [4, 3]])
    some, every = network.encode(item_ids, lengths, at, times), network.encode(item_ids, lengths, None, times)
    picked = torch.stack([row[places] for row, places in zip(every, at, strict=True)])
    torch.testing.assert_close(some, picked, atol=1e-5, rtol=1e-4)


def test_a_window_trains_what_is_asked_later(make_timed):
    """In one pass SASRec's state at each place is that of the question asked when the item there came."""
    network = make_timed("sasrec", positions="none")  # learned ones are counted from the end of the window
    window = torch.tensor([[item for item, _ in HISTORY]], dtype=torch.int32)
    came = torch.tensor([[NOW_MS - ago for _, ago in HISTORY]])
    with torch.inference_mode():
        states = network.encode(window, torch.tensor([4], dtype=torch.int32), None, came)[0]
        for place, (_, ago_ms) in enumerate(HISTORY):
            item_ids, lengths, times = read(network, HISTORY[:place], asked_ms=NOW_MS - ago_ms)
            alone = network.encode(item_ids, lengths, None, times)[0, -1]
            torch.testing.assert_close(states[place], alone, atol=1e-4, rtol=1e-4)


def test_what_a_gap_is_to_nova_stays_hidden_when_time_is_told(make_small):
    """A NOVA network told gaps alone gives no other answer for the time of the question, which stands at [mask]."""
    network = make_small("nova-sasrec", side=SideInformation(events={"times": (10_000.0, 1e7)}))
    item_ids, lengths, times = read(network, HISTORY)
    with torch.inference_mode():
        scores = network(item_ids, lengths, times)
        untold = times.clone()
        untold[:, -1] = 0
        torch.testing.assert_close(network(item_ids, lengths, untold), scores)
        assert (network(item_ids, lengths) - scores).abs().max() > 0.001
