"""Which users a candidate answers: always the same ones, as many as its share says, and with each more of them."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.recommend.assignment import assign

USERS = [f"user-{number}" for number in range(10_000)]

user_ids = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=64)
salts = st.text("0123456789abcdef", min_size=8, max_size=8)
shares = st.floats(0, 1)


def _assigned(salt, share):
    return {user for user in USERS if assign(user, salt=salt, share=share) == "candidate"}


def test_a_share_of_the_users_is_assigned_and_raising_it_moves_none_out():
    """10,000 users at 1, 5, 20 and 5 %: each larger group holds the smaller one, and the last is the second again."""
    groups = [_assigned("6f0c51d2", share) for share in (0.01, 0.05, 0.2, 0.05)]
    for share, group in zip((0.01, 0.05, 0.2, 0.05), groups, strict=True):
        assert len(group) / len(USERS) == pytest.approx(share, abs=0.01)
    assert groups[0] < groups[1] < groups[2]
    assert groups[3] == groups[1]


def test_another_salt_chooses_other_users():
    """The users of two candidates overlap as chance has it."""
    first, second = _assigned("6f0c51d2", 0.2), _assigned("6f0c51d3", 0.2)
    assert len(first & second) / len(USERS) == pytest.approx(0.04, abs=0.01)  # as many as chance gives


def test_the_hash_is_the_documented_one():
    """Another release, or another judge, must assign the same users."""
    at = 10_212_793_039_843_524_936 / 2**64  # b2sum -l 64 of "6f0c51d2", a zero byte and "user-1"
    assert assign("user-1", salt="6f0c51d2", share=at + 1e-9) == "candidate"
    assert assign("user-1", salt="6f0c51d2", share=at - 1e-9) == "champion"


@given(user_ids, salts, st.lists(shares, min_size=2, max_size=8))
def test_a_user_enters_once_as_the_share_grows(user_id, salt, steps):
    """Whatever the user, the salt and the shares."""
    variants = [assign(user_id, salt=salt, share=share) for share in sorted(steps)]
    assert all((before, after) != ("candidate", "champion") for before, after in pairwise(variants))


@given(user_ids, salts)
def test_no_share_assigns_nobody_and_a_whole_one_everybody(user_id, salt):
    """Shares of 0 and 1 have no exception."""
    assert assign(user_id, salt=salt, share=0) == "champion"
    assert assign(user_id, salt=salt, share=1) == "candidate"


@given(salts, shares)
def test_a_request_without_a_user_is_the_champions(salt, share):
    """It has no name by which it would stay with the candidate."""
    assert assign(None, salt=salt, share=share) == "champion"
