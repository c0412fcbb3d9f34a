"""The share of trials that had their verdict, by the number of events, as a PNG."""

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.trial.cases import TERMS
from training.plots.style import begin_picture, style_line, tidy, to_png

METHODS = {"visits": "", "events": ", each event a bet", "t-test": ", t-test looked at daily"}


def draw_shares(rows: Sequence[Mapping[str, Any]]) -> bytes:
    """Left the errors, right what should be found."""
    figure = begin_picture(10.0, 3.6)
    errors, found = figure.subplots(1, 2)
    for axes, title, wanted in (
        (errors, "errors: neither is better", {"rarely", "nothing"}),
        (found, "one is better: found", {"nearly always"}),
    ):
        drawn = [row for row in rows if row["promised"] in wanted]
        for place, row in enumerate(drawn):
            events, shares = zip(*((int(event), share) for event, share in row["by_event"].items()), strict=True)
            label = f"{row['candidate']}: {row['verdict']}{METHODS[row['method']]}"
            dashed = {} if row["promised"] != "nothing" else {"linestyle": "--"}
            axes.plot(events, shares, label=label, **{**style_line(place, 100), **dashed})
        axes.set(title=title, xlabel="paired events", ylabel="share of trials with the verdict", xscale="log")
        tidy(axes)
        axes.legend(fontsize="x-small")
    errors.axhline(TERMS.alpha, color="0.4", linewidth=0.8, linestyle=":")
    return to_png(figure)
