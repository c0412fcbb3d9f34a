"""Recommendation ids: UUIDv7s that say which generation and variant answered, and that nobody else can make."""

import os
import random
import uuid

import pytest
import uuid_utils
from hypothesis import given
from hypothesis import strategies as st

from model.contract.deployment.document import VariantName
from service.ranking.recommendation_id import GENERATIONS, MAX_CLOCK_STEP_MS, Origin, RecommendationIds

FOREIGN_IDS = int(os.environ.get("FOREIGN_IDS", "200000"))
KEY = "3f1c" * 8
NOW_NS = 1_790_000_000_123_456_789
VARIANTS: tuple[VariantName, ...] = ("champion", "candidate")

user_ids = st.none() | st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=64)


def _ids(now_ns=NOW_NS):
    return RecommendationIds(KEY, clock_ns=lambda: now_ns)


@given(user_ids, st.integers(0, 2**53), st.sampled_from(VARIANTS), st.booleans())
def test_an_id_says_what_it_was_made_of(user_id, generation, variant, from_model):
    """Read back by another object with the same key; and to anybody else it is a plain UUIDv7."""
    made = _ids().make(user_id, generation=generation, variant=variant, from_model=from_model)
    assert _ids().read(made, user_id) == Origin(
        made_ms=NOW_NS // 1_000_000, generation=generation % GENERATIONS, variant=variant, from_model=from_model
    )
    assert _ids().read(made.upper(), user_id) is not None  # a UUID is the same in capitals
    assert uuid.UUID(made).version == 7
    assert uuid.UUID(made).variant == uuid.RFC_4122
    assert str(uuid.UUID(made)) == made


def test_100_000_ids_say_their_generation_and_variant_and_differ():
    """Whatever generation, variant and user they were made for."""
    ids, chance = RecommendationIds(KEY), random.Random(0)  # noqa: S311 - test data
    seen = set()
    for number in range(100_000):
        generation, variant = chance.randrange(10_000), VARIANTS[number % 2]
        made = ids.make(f"user-{number % 97}", generation=generation, variant=variant, from_model=True)
        origin = ids.read(made, f"user-{number % 97}")
        assert origin is not None
        assert (origin.find_generation(10_000) - generation) % GENERATIONS == 0
        assert origin.variant == variant
        seen.add(made)
    assert len(seen) == 100_000


def test_hardly_any_foreign_id_is_taken_for_ours():
    """A chance of 2^-20 each. FOREIGN_IDS=1000000 expects one; more than five come once in 1,700 runs."""
    ids = RecommendationIds(KEY)
    assert sum(ids.read(str(uuid_utils.uuid7()), "user-1") is not None for _ in range(FOREIGN_IDS)) <= 5


def test_an_id_counts_for_its_user_and_its_deployment_only():
    """An id of somebody else's answer says nothing."""
    made = [_ids().make("alice", generation=3, variant="candidate", from_model=True) for _ in range(100)]
    assert all(_ids().read(one, "alice") for one in made)
    for reader, user in ((_ids(), "bob"), (_ids(), None), (RecommendationIds("another key"), "alice")):
        assert sum(reader.read(one, user) is not None for one in made) <= 1


def test_without_a_key_nobody_else_reads_the_ids():
    """An empty key would let everybody sign."""
    made = [RecommendationIds("").make("alice", generation=1, variant="champion", from_model=True) for _ in range(100)]
    assert sum(RecommendationIds("").read(one, "alice") is not None for one in made) <= 1


def test_no_bit_of_an_id_can_be_changed():
    """So nobody makes many ids of one, or a candidate's of a champion's."""
    made = uuid.UUID(_ids().make("alice", generation=3, variant="champion", from_model=True))
    changed = [str(uuid.UUID(int=made.int ^ 1 << bit)) for bit in range(128)]
    assert sum(_ids().read(one, "alice") is not None for one in changed) <= 1


@given(st.text(max_size=40) | st.uuids().map(str))
def test_other_texts_are_no_ids(text):
    """Clients send any text as an id."""
    assert RecommendationIds("another key").read(text, "alice") is None


@pytest.mark.parametrize(
    ("newest", "generation"), [(5, 5), (6, 5), (5 + GENERATIONS, 5 + GENERATIONS), (4 + GENERATIONS, 5)]
)
def test_the_generation_is_the_last_one_that_an_id_can_mean(newest, generation):
    """It is written modulo 1,024."""
    origin = Origin(made_ms=0, generation=5, variant="champion", from_model=True)
    assert origin.find_generation(newest) == generation


def test_an_id_of_a_later_generation_has_none():
    """A reader that lags behind says so by a negative number."""
    assert Origin(made_ms=0, generation=5, variant="champion", from_model=True).find_generation(4) < 0


def test_times_do_not_fall_while_the_clock_is_set_back_a_little():
    """As RFC 9562 wants of ids that sort by time."""
    clock_ms = [1000, 999, 1001, 1001 - MAX_CLOCK_STEP_MS, 1002]
    readings = iter(clock_ms)
    ids = RecommendationIds(KEY, clock_ns=lambda: next(readings) * 1_000_000)
    made = [ids.make("alice", generation=1, variant="champion", from_model=False) for _ in clock_ms]
    assert [int(one[:8] + one[9:13], 16) for one in made] == [1000, 1000, 1001, 1001, 1002]


def test_times_follow_a_clock_that_was_corrected():
    """Otherwise ids would claim the wrong time until the clock reaches it again."""
    readings = iter([1_000_000, 1_000_000 - MAX_CLOCK_STEP_MS - 1])
    ids = RecommendationIds(KEY, clock_ns=lambda: next(readings) * 1_000_000)
    made = [ids.make("alice", generation=1, variant="champion", from_model=False) for _ in range(2)]
    assert int(made[1][:8] + made[1][9:13], 16) == 1_000_000 - MAX_CLOCK_STEP_MS - 1
