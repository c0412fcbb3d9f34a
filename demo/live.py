"""What the service says of its live quality: the judge's figures among its metrics."""

import math
import re
import time
from collections.abc import Iterable
from dataclasses import dataclass, replace

import httpx

_SERIES = re.compile(r"^(nextitem_\w+)\{([^}]*)\} (\S+)$", re.MULTILINE)
_JUDGED = re.compile(r"^nextitem_judge_timestamp_seconds ([1-9]\S*)$", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="([^"]*)"')
_FIGURES = ("trials", "gain", "unknown", "skipped", "better")
_BARS = "▁▂▃▄▅▆▇█"


@dataclass(frozen=True, slots=True)
class Live:
    """Sums over the champions' events so far, whichever version answered, and the evidence of a trial."""

    trials: float = 0.0
    gain: float = 0.0
    unknown: float = 0.0
    skipped: float = 0.0
    better: float = 1.0
    """The e-value that the candidate is better."""
    judged: bool = False
    """Whether a judge has written figures."""

    def since(self, earlier: "Live") -> "Live":
        """What came after an earlier look."""
        return Live(
            trials=self.trials - earlier.trials,
            gain=self.gain - earlier.gain,
            unknown=self.unknown - earlier.unknown,
            skipped=self.skipped - earlier.skipped,
            better=self.better,
            judged=self.judged,
        )

    @property
    def ndcg(self) -> float:
        """Mean NDCG@10; 0 without trials."""
        return self.gain / self.trials if self.trials else 0.0

    @property
    def unknown_share(self) -> float:
        """Share of events whose item the model does not know."""
        return self.unknown / self.trials if self.trials else 0.0

    @property
    def seen(self) -> float:
        """Events that the judge has dealt with."""
        return self.trials + self.skipped


def look(client: httpx.Client) -> Live:
    """The figures of now, as `GET /metrics` has them."""
    return parse(client.get("/metrics").text)


def parse(text: str) -> Live:
    """The figures of a page of metrics."""
    sums = dict.fromkeys(("trials", "gain", "unknown", "skipped"), 0.0)
    better = 1.0
    for name, labels, value in _SERIES.findall(text):
        of = dict(_LABEL.findall(labels))
        if name == "nextitem_online_skipped_total":
            sums["skipped"] += float(value)
        elif of.get("variant") == "champion":
            if name == "nextitem_online_trials_total":
                sums["trials"] += float(value)
            elif name == "nextitem_online_gain_total" and of.get("metric") == "ndcg@10":
                sums["gain"] += float(value)
            elif name == "nextitem_online_unknown_total":
                sums["unknown"] += float(value)
        elif name == "nextitem_trial_e_value" and of.get("verdict") == "promote":
            better = float(value)
    return Live(**sums, better=better, judged=_JUDGED.search(text) is not None)


def read_gauge(text: str, name: str) -> float:
    """The value of a metric without labels on a page of metrics; NaN where there is none, as what is not known."""
    found = re.search(rf"^{name} (\S+)$", text, re.MULTILINE)
    return float(found[1]) if found else math.nan


class Course:
    """The figures over time: a look whenever the judge has written new ones."""

    def __init__(self, client: httpx.Client) -> None:
        self._client = client
        self._began_s = time.monotonic()
        self.looks: list[tuple[float, str, Live]] = [(0.0, "", look(client))]
        """Seconds since the beginning, the phase, the sums."""

    def look(self, phase: str) -> Live:
        """Look, and remember it if there is something new."""
        live = look(self._client)
        if live.seen != self.looks[-1][2].seen:
            self.looks.append((time.monotonic() - self._began_s, phase, live))
        return live

    def close_trial(self, e_value: float) -> None:
        """Add the evidence of the verdict, which the metrics show no more: the trial is over."""
        at_s, phase, live = self.looks[-1]
        self.looks[-1] = (at_s, phase, replace(live, better=e_value))

    def split(self) -> list[tuple[float, str, Live]]:
        """What each look added: the judge writes every 5 s, so that is some 500 events."""
        pairs = zip(self.looks, self.looks[1:], strict=False)
        return [(at_s, phase, live.since(earlier)) for (_, _, earlier), (at_s, phase, live) in pairs]

    def describe(self) -> list[dict[str, float | str]]:
        """The same as JSON has it, for a picture."""
        return [
            {"at_s": round(at_s, 1), "phase": phase, **{name: round(getattr(new, name), 4) for name in _FIGURES}}
            for at_s, phase, new in self.split()
        ]


def draw_bars(values: Iterable[float]) -> str:
    """A row of bars, from 0 to the highest."""
    heights = list(values)
    highest = max(heights, default=0.0) or 1.0
    return "".join(_BARS[round(max(0.0, height) / highest * (len(_BARS) - 1))] for height in heights)
