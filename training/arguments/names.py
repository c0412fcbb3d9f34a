"""Names and defaults that options and the rooms below know."""

PROTOCOL_NAMES = {
    "P1": "sampled-popular",
    "P1a": "sampled-popular-aprec",
    "P2": "full",
    "P5": "full-5core",
    "P6s": "full-keep-seen",
    "P7": "sampled-uniform",
    "time": "time",
}
"""The code of each protocol, which results hold, and the name that says what it is. Options accept both."""
PROTOCOLS = ", ".join(name if name == code else f"{name} ({code})" for code, name in PROTOCOL_NAMES.items())
BENCHMARK_MODELS = ("pop", "markov", "rules", "item-knn", "session-knn", "bpr-mf", "fpmc", "gru4rec", "bert4rec-small")
SEEN_ITEMS = ("removed", "kept")
"""What a protocol does with items of the history, the target aside: no candidates, or candidates."""
REPEATED_TARGETS = ("kept", "missed", "dropped")
"""What it does with a target that its user has met before. kept: it is a candidate like others. missed: it is removed
as every seen item is, and so is in no list. dropped: it makes no question."""
SWEEP_PRESETS = (
    "bert4rec-width",
    "bert4rec-mask-share",
    "bert4rec-max-length",
    "bert4rec-ablations",
    "nova-fusion",
)
"""The grids of training/sweep/presets.py."""
AUTO, MINUTES = "auto", 10.0
"""What `fit` does without a recipe, and how long it then takes at most unless told otherwise."""
DATA_SET_NAMES = ("ml-100k", "ml-1m", "ml-20m")


def find_protocol_code(text: str) -> str | None:
    """The code of a protocol by its code or name; None of any other text."""
    return next((code for code, name in PROTOCOL_NAMES.items() if text in (code, name)), None)
