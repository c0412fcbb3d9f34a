"""What the service says of its live quality: the judge's figures among its metrics."""

import re
from dataclasses import dataclass

import httpx

_SERIES = re.compile(r"^(nextitem_\w+)\{([^}]*)\} (\S+)$", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="([^"]*)"')


@dataclass(frozen=True, slots=True)
class Live:
    """Sums over the champions' events so far, whichever version answered, and the evidence of a trial."""

    trials: float = 0.0
    gain: float = 0.0
    unknown: float = 0.0
    better: float = 1.0
    """The e-value that the candidate is better."""

    def since(self, earlier: "Live") -> "Live":
        """What came after an earlier look."""
        return Live(self.trials - earlier.trials, self.gain - earlier.gain, self.unknown - earlier.unknown, self.better)

    @property
    def ndcg(self) -> float:
        """Mean NDCG@10; 0 without trials."""
        return self.gain / self.trials if self.trials else 0.0

    @property
    def unknown_share(self) -> float:
        """Share of events whose item the model does not know."""
        return self.unknown / self.trials if self.trials else 0.0


def look(client: httpx.Client) -> Live:
    """The figures of now, as `GET /metrics` has them."""
    return parse(client.get("/metrics").text)


def parse(text: str) -> Live:
    """The figures of a page of metrics."""
    sums = dict.fromkeys(("trials", "gain", "unknown"), 0.0)
    better = 1.0
    for name, labels, value in _SERIES.findall(text):
        of = dict(_LABEL.findall(labels))
        if of.get("variant") == "champion":
            if name == "nextitem_online_trials_total":
                sums["trials"] += float(value)
            elif name == "nextitem_online_gain_total" and of.get("metric") == "ndcg@10":
                sums["gain"] += float(value)
            elif name == "nextitem_online_unknown_total":
                sums["unknown"] += float(value)
        elif name == "nextitem_trial_e_value" and of.get("verdict") == "promote":
            better = float(value)
    return Live(sums["trials"], sums["gain"], sums["unknown"], better)
