"""What became of a soak's requests, kind by kind."""

from collections.abc import Iterable, Sequence

from benchmarks.harness.open_loop import Outcome, percentile


def count_refused(outcomes: Iterable[Outcome]) -> int:
    """How many got a 503: for want of room, or of a store in time."""
    return sum(outcome.status == 503 for outcome in outcomes)


def count_failed(outcomes: Iterable[Outcome]) -> int:
    """How many got another 5xx, or no answer."""
    return sum(not 200 <= outcome.status < 500 and outcome.status != 503 for outcome in outcomes)


def tabulate(outcomes: Sequence[Outcome], labels: Iterable[str]) -> str:
    """A row for each label, and one for all; times count from when a request was due."""
    lines = [f"  {'':<14}{'requests':>9}{'503':>7}{'failed':>8}{'p50':>9}{'p99':>10}{'longest':>10}"]
    rows = {label: [outcome for outcome in outcomes if outcome.label == label] for label in labels}
    for label, chosen in {**rows, "all": outcomes}.items():
        p50_ms, p99_ms, longest_ms = (
            1e3 * percentile((outcome.latency_s for outcome in chosen), share) for share in (0.5, 0.99, 1.0)
        )
        lines.append(
            f"  {label:<14}{len(chosen):>9,}{count_refused(chosen):>7,}{count_failed(chosen):>8,}"
            f"{p50_ms:>6.0f} ms{p99_ms:>7.0f} ms{longest_ms:>7.0f} ms"
        )
    return "\n".join(lines)
