"""What goes with a problem beside its document."""

import pytest

from service.errors import Overloaded, StoreNotDurable, StoreUnavailable
from service.http.problems import RETRY_AFTER_S, answer_problem


@pytest.mark.parametrize("problem", [Overloaded, StoreUnavailable, StoreNotDurable])
def test_clients_are_not_told_to_come_back_together(problem):
    """Of a hundred that are refused, some come back after each of the seconds."""
    answers = [answer_problem(problem(), {"state": {"request_id": "r"}}) for _ in range(100)]
    assert {int(answer.headers["retry-after"]) for answer in answers} == set(RETRY_AFTER_S)
