"""The pictures that a finished run holds."""

from model.contract.atomic_files import write_whole
from model.nets.network import Network
from training.data.histories import Histories
from training.errors import InputError
from training.evaluation.attention import measure_attention
from training.plots.attention_map import draw_attention
from training.plots.learning_curves import draw_curves
from training.recipe_models import TransformerRecipe
from training.runs.evaluate import print_note
from training.runs.networks import load_network
from training.runs.progress import Progress
from training.runs.run import Run


def draw_run(run: Run, progress: Progress, histories: Histories) -> None:
    """Draw learning curves, where there are epochs, and where a transformer looks in these histories."""
    if progress.epoch:
        write_whole(run.curves, draw_curves(run.read_epochs(), progress.kept_epoch, run.recipe))
    if isinstance(run.recipe.model, TransformerRecipe):
        _draw_attention(run, load_network(run, alone=True), histories)


def _draw_attention(run: Run, network: Network, histories: Histories) -> None:
    try:
        found = measure_attention(network, histories)
    except InputError as error:
        print_note(f"{run.attention.name} was not written: {error}")
    else:
        write_whole(run.attention, draw_attention(found, run.recipe.model.name))
