"""Shares the minutes out: training, validation and tests, all of them measured before they begin."""

from dataclasses import dataclass

from training.auto.speeds import LEAST_TESTED

MOST_TESTED = 10_000
MOST_VALIDATED, LEAST_VALIDATED = 5_000, 100
_TEST_SHARE, _VALIDATION_SHARE, _MIXING_SHARE, _LEAST_TRAINING = 0.25, 0.15, 0.1, 0.25
"""Of what is left when training begins, but for validation: that is a share of training."""
_PICTURES_SECONDS, _PICTURES_SHARE = 6.0, 0.1
"""What drawing curves and attention takes, or its share of a short time."""


@dataclass(frozen=True, kw_only=True)
class Costs:
    """Seconds, measured on this log."""

    epoch: float
    network: float
    """A question to the network, as each of the following is a question."""
    ranking: float
    rules: float
    counters: float
    """One to every counter."""
    weights_tried: int = 1
    """Times that a validation question is ranked to choose how much rules and recency weigh."""
    preparing: float = 0.0
    """All that has to be counted and sorted before the first question of mixing and tests."""

    @property
    def test(self) -> float:
        """A question of the test: the network with rules, as served and alone; counters, and the best once more."""
        return 3 * self.network + 2 * self.rules + self.counters + self.rules + self.ranking

    @property
    def mixing(self) -> float:
        """A validation question by which the weights of what is counted beside the network are chosen."""
        return self.network + self.rules + self.weights_tried * self.ranking


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Who gets how much."""

    train_seconds: float
    validation_users: int
    test_users: int
    epochs: float
    """How many are expected, parts of one included."""
    end_seconds: float
    """What comes after training."""
    seconds: float
    """All of it, what is over included."""


def share_out(
    *, total: float, elapsed: float, costs: Costs, epochs: int, validation_users: int, test_users: int
) -> Plan:
    """Share out what is left of `total` seconds; so many epochs are wanted, and so many users can be asked."""
    left = max(total - elapsed - costs.preparing, 0.05 * total)
    tested = _clip(_TEST_SHARE * left / costs.test, LEAST_TESTED, min(MOST_TESTED, test_users))
    pictures = min(_PICTURES_SECONDS, _PICTURES_SHARE * total)
    training = left - tested * costs.test - pictures
    expected = min(epochs, max(1.0, training / costs.epoch))
    validated = _clip(
        min(_VALIDATION_SHARE * training / (expected * costs.network), _MIXING_SHARE * left / costs.mixing),
        LEAST_VALIDATED,
        min(MOST_VALIDATED, validation_users),
    )
    end = tested * costs.test + validated * (costs.mixing + costs.network) + pictures
    training = max(1.0, _LEAST_TRAINING * left, left - end)
    an_epoch = costs.epoch + validated * costs.network
    expected = min(float(epochs), training / an_epoch)
    end += costs.preparing
    return Plan(
        train_seconds=training,
        validation_users=validated,
        test_users=tested,
        epochs=expected,
        end_seconds=end,
        seconds=elapsed + min(training, expected * an_epoch) + end,
    )


def count_tested(plan: Plan, costs: Costs, left: float) -> int:
    """How many users the test may ask when `left` seconds are left: at most as planned, and never fewer than a few."""
    pictures = min(_PICTURES_SECONDS, plan.end_seconds)
    room = (left - costs.preparing - plan.validation_users * costs.mixing - pictures) / costs.test
    return _clip(room, min(LEAST_TESTED, plan.test_users), plan.test_users)


def describe_plan(plan: Plan, total: float, left_out: dict[str, str]) -> str:
    """The minutes, foretold."""
    epochs = f"{plan.epochs:.0f} epochs" if plan.epochs >= 1.5 else f"{plan.epochs:.1f} of an epoch"
    words = [
        f"Time: about {format_seconds(plan.seconds)} of the {format_seconds(total)} allowed (--minutes): {epochs} of "
        f"training, validated on {plan.validation_users:,} users, then tests of {plan.test_users:,} users."
    ]
    if plan.epochs < 1.5:
        words.append("More minutes would make a better network.")
    words += [f"{name} is left out: {why}." for name, why in left_out.items()]
    return " ".join(words)


def format_seconds(seconds: float) -> str:
    """A time for people."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} minutes"


def _clip(value: float, least: int, most: int) -> int:
    """A whole number from `least` to `most`, `most` where that is less."""
    return max(1, min(most, max(least, int(value))))
