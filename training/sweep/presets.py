"""The papers' sweeps and ablations by name: grids that any log can be asked.

The values are those of Sun et al., CIKM 2019 (BERT4Rec): figure 3 (width), figure 4 (mask share), table 4 (N, with 20
for logs of short histories) and table 5 (what each part is worth, beside L = 2 and h = 2); and of Liu et al., AAAI 2021
(NOVA): table 4 (how side information is fused).
"""

from collections.abc import Mapping
from dataclasses import dataclass

from training.errors import InputError
from training.recipe import Recipe
from training.sweep.space import Parameter, Values, Variants

MASKED = ("bert4rec", "nova-bert")
TRANSFORMERS = ("bert4rec", "sasrec", "nova-bert", "nova-sasrec")
WITH_SIDE_INFORMATION = ("nova-bert", "nova-sasrec")
ABLATION = {
    "as it is": (),
    "no positions": ("model.positions=none",),
    "no feed-forward network": ("model.feed_forward=false",),
    "no LayerNorm": ("model.norm=none",),
    "no residual connections": ("model.residual=false",),
    "no dropout": ("model.dropout=0.0", "model.attention_dropout=0.0"),
    "1 layer": ("model.layers=1",),
    "2 layers": ("model.layers=2",),
    "3 layers": ("model.layers=3",),
    "4 layers": ("model.layers=4",),
    "1 head": ("model.heads=1",),
    "2 heads": ("model.heads=2",),
    "4 heads": ("model.heads=4",),
    "8 heads": ("model.heads=8",),
}
FUSIONS = {
    f"{fusion}, {name}": (f"model.fusion={fusion}", f"model.invasive={invasive}")
    for name, invasive in (("beside the items", "false"), ("invasive", "true"))
    for fusion in ("add", "concat", "gate")
}


@dataclass(frozen=True, kw_only=True)
class Preset:
    """A grid, and the models that it says something of."""

    parameter: Parameter
    models: tuple[str, ...]


PRESETS: Mapping[str, Preset] = {
    "bert4rec-width": Preset(parameter=Values(key="model.width", values=(16, 32, 64, 128, 256)), models=TRANSFORMERS),
    "bert4rec-mask-share": Preset(
        parameter=Values(key="train.mask_probability", values=(0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)),
        models=MASKED,
    ),
    "bert4rec-max-length": Preset(
        parameter=Values(key="model.max_length", values=(10, 20, 50, 100, 200)), models=TRANSFORMERS
    ),
    "bert4rec-ablations": Preset(parameter=Variants(key="variant", variants=ABLATION), models=TRANSFORMERS),
    "nova-fusion": Preset(parameter=Variants(key="variant", variants=FUSIONS), models=WITH_SIDE_INFORMATION),
}


def find_preset(name: str, recipe: Recipe) -> Parameter:
    """What a preset tries. Raises InputError where the recipe's model is not one that it is about."""
    preset = PRESETS[name]
    if recipe.model.name not in preset.models:
        raise InputError(
            f"--preset {name} is for {', '.join(preset.models)}; the recipe's model is {recipe.model.name}"
        )
    return preset.parameter
