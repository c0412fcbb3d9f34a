"""The tree of exceptions."""

import re

import pytest

from service import errors


def _problems(kind=errors.Problem):
    for child in kind.__subclasses__():
        yield from _problems(child)
        if "slug" in vars(child):
            yield child


PROBLEMS = sorted(_problems(), key=lambda kind: kind.__name__)


@pytest.mark.parametrize("kind", PROBLEMS)
def test_the_docstring_draws_the_tree(kind):
    """Every problem stands in the module's docstring with its own status and slug."""
    assert re.search(rf"── {kind.__name__} +{kind.status} +{kind.slug}\b", errors.__doc__)


def test_slugs_and_titles_are_one_to_one():
    """A slug has one title, and no two problems share either."""
    assert len({kind.slug for kind in PROBLEMS}) == len({kind.title for kind in PROBLEMS}) == len(PROBLEMS) == 23


def test_a_problem_has_a_detail_that_can_be_replaced():
    """The detail is a fixed sentence unless the raiser has a better one."""
    assert errors.NotFound().detail == errors.NotFound.default_detail
    assert errors.NotFound("No such item.").detail == str(errors.NotFound("No such item.")) == "No such item."


def test_invalid_shows_ten_faults_at_most():
    """The eleventh fault is dropped."""
    field_errors = [errors.FieldError(f"/events/{index}", "missing", "A field is missing.") for index in range(11)]
    assert errors.Invalid(field_errors).field_errors == tuple(field_errors[:10])
