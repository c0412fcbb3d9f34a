"""attention.png: one panel for each layer and head, one colour scale for all."""

import textwrap

import numpy as np

from training.evaluation.attention import AttentionMap
from training.plots.style import begin_picture, to_png

_UNSEEN = "0.93"
"""The grey of what a causal network cannot see."""
_PANEL_INCHES = 3.0
_LETTERS_AN_INCH = 14


def draw_attention(found: AttentionMap, name: str) -> bytes:
    """Draw a network's mean attention weights as a PNG. `name` is the network's."""
    L, H, K, _ = found.weights.shape
    width = 2.0 + _PANEL_INCHES * H
    figure = begin_picture(width, 1.8 + _PANEL_INCHES * L)
    later = np.triu(np.ones((K, K), dtype=bool), 1) & found.causal
    grid = figure.subplots(L, H, squeeze=False, sharex=True, sharey=True)
    for (layer, head), axes in np.ndenumerate(grid):
        weights = found.weights[layer, head]
        image = axes.imshow(np.ma.array(weights, mask=later), cmap="viridis", vmin=0, vmax=found.weights.max())
        axes.set_facecolor(_UNSEEN)
        axes.set_title(f"layer {layer + 1}, head {head + 1} ({100 * weights.sum(axis=1).mean():.0f} %)", fontsize=10)
        axes.set_xticks(range(K), found.positions, rotation=90)
        axes.set_yticks(range(K), found.positions)
        axes.tick_params(labelsize=8, length=2)
        axes.label_outer(remove_inner_ticks=True)
    for axes in grid[:, 0]:
        axes.set_ylabel("token that attends")
    for axes in grid[-1]:
        axes.set_xlabel("token attended to")
    figure.colorbar(image, ax=grid, label="mean attention weight", shrink=0.9, aspect=30)
    figure.suptitle(f"Attention of {name} by layer and head")
    figure.supxlabel(textwrap.fill(_explain(found, K), int(width * _LETTERS_AN_INCH)), fontsize=8, color="0.3")
    return to_png(figure)


def _explain(found: AttentionMap, K: int) -> str:
    share = "all" if found.users == found.long_enough else f"{found.users:,} at random"
    return (
        f"Mean over {share} of the {found.long_enough:,} users with {K} events or more, of {found.questions:,} in all. "
        f"The last {K} positions, -1 being the newest event. In brackets: their share of the weight; the rest lies on "
        f"older ones.{' Grey: a causal network never looks ahead.' if found.causal else ''}"
    )
