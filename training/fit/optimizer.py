"""AdamW as the paper sets it, and its learning rate over a run."""

import torch
from torch import nn

from training.recipe import TrainRecipe


def make_optimizer(network: nn.Module, recipe: TrainRecipe) -> torch.optim.AdamW:
    """AdamW with betas .9 and .999 that decays matrices only: no biases, no norms."""
    parameters = list(network.parameters())
    groups = [
        {"params": [weight for weight in parameters if weight.dim() > 1], "weight_decay": recipe.weight_decay},
        {"params": [weight for weight in parameters if weight.dim() <= 1], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=recipe.learning_rate, betas=(0.9, 0.999), fused=True)


def schedule_rate(recipe: TrainRecipe, *, update: int, updates: int, seconds: float) -> float:
    """The learning rate of one update: linear warm-up, then linear decay to 0 at the end of the run.

    The end is the last epoch or the budget, whichever comes first at the present pace.
    """
    progress = update / updates
    if recipe.budget_seconds is not None:
        progress = max(progress, seconds / recipe.budget_seconds)
    warm = min(1.0, (update + 1) / (recipe.warmup_steps + 1))
    return recipe.learning_rate * warm * max(0.0, 1 - progress)
