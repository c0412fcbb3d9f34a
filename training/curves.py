"""curves.png: how the loss fell and the validation rose."""

import io
from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

_SHOWN = ("HR@10", "NDCG@10", "MRR")


def draw_curves(epochs: Sequence[Mapping[str, Any]], kept_epoch: int) -> bytes:
    """A PNG of the epochs of metrics.jsonl."""
    figure = Figure(figsize=(10, 4), layout="constrained")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2)
    numbers = [line["epoch"] for line in epochs]
    marker = "o" if len(numbers) < 40 else None
    left.plot(numbers, [line["loss"] for line in epochs], marker=marker, markersize=3, color="tab:red")
    left.set(title="Training", xlabel="epoch", ylabel="Cloze loss (nats a masked item)")
    for name in _SHOWN:
        right.plot(numbers, [line["validation"][name] for line in epochs], marker=marker, markersize=3, label=name)
    right.axvline(kept_epoch, color="grey", linestyle=":", label=f"kept, epoch {kept_epoch}")
    right.set(title="Validation (all items ranked, seen removed)", xlabel="epoch")
    right.set_ylim(bottom=0)
    right.legend()
    for axes in (left, right):
        axes.grid(alpha=0.3)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=110)
    return buffer.getvalue()
