"""What /recommend answered under each fault, and when events were taken again, in lines for people."""

import statistics
from collections import Counter
from collections.abc import Mapping, Sequence

from benchmarks.harness.open_loop import percentile
from benchmarks.reliability.chaos.recommend_probe import LEAST_ANSWERED, LIMIT_MS, Asked, add_up, judge


def tabulate(by_kind: Mapping[str, Asked], recovered_s: Mapping[str, Sequence[float]]) -> str:
    """A row for each fault."""
    lines = [
        f"\n{'':<40}first event after it  | /recommend asked",
        f"{'fault':<40}  median   longest  |   times       200       p50       p99  no service",
    ]
    for kind, asked in by_kind.items():
        seconds = recovered_s.get(kind)
        first = f"{statistics.median(seconds):>6.2f} s{max(seconds):>8.2f} s" if seconds else " " * 18
        share = f"{100 * asked.answered:.2f} %"
        times = f"{asked.latency_ms(0.5):>7.0f} ms{asked.latency_ms(0.99):>7.0f} ms"
        lines.append(f"{kind:<40}{first}    |{len(asked.outcomes):>8,}{share:>10}{times}{asked.unserved:>12,}")
    return "\n".join(lines)


def sum_up(by_kind: Mapping[str, Asked]) -> str:
    """How /recommend was answered in all, and whether that is as promised."""
    asked = add_up(by_kind)
    statuses = Counter(str(each.status or "no answer") for each in asked.outcomes)
    sources = Counter(" ".join(filter(None, (each.source, each.degraded))) for each in asked.outcomes if each.source)
    late_ms = 1e3 * percentile((each.late_s for each in asked.outcomes), 0.99)
    return (
        f"/recommend: {len(asked.outcomes):,} asked: {_count(statuses)}; {asked.unserved:,} more met no service\n"
        f"  p50 {asked.latency_ms(0.5):.0f} ms, p99 {asked.latency_ms(0.99):.0f} ms (sent late: p99 {late_ms:.0f} ms)\n"
        f"  {_count(sources)}\n"
        f"  Promised: {100 * LEAST_ANSWERED:.1f} % of 200, p99 {LIMIT_MS} ms at most: "
        f"{'kept' if judge(by_kind) else 'NOT KEPT'}"
    )


def _count(words: Counter[str]) -> str:
    return ", ".join(f"{count:,} x {word}" for word, count in words.most_common())
