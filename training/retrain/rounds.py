"""How the last round of `retrain --every` ended, for a probe. Imports no torch, since probes are frequent."""

import contextlib
import json
import time
from pathlib import Path

from training.errors import TrainingError
from training.json_files import write_json

LAST = "last-round.json"
STALE_ROUNDS = 3
"""Without a round that ended for so many intervals, the check fails."""


def note_round(runs: Path, every_s: float, failure: str | None = None) -> None:
    """Note that a round ended, and the sentence of its failure. A full disk ends no rounds; the check finds it out."""
    with contextlib.suppress(OSError):
        write_json(runs / LAST, {"ended_at_s": round(time.time(), 1), "every_s": every_s, "failure": failure})


def check_rounds(runs: Path) -> None:
    """Raise TrainingError unless the last round ended well, and within three intervals."""
    try:
        last = json.loads((runs / LAST).read_bytes())
        ended_s, every_s, failure = float(last["ended_at_s"]), float(last["every_s"]), last["failure"]
    except FileNotFoundError as error:
        raise TrainingError(f"no round of retrain --every has ended yet with {runs}") from error
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise TrainingError(f"{runs / LAST} cannot be read") from error
    if failure is not None:
        raise TrainingError(f"the last round failed: {failure}")
    hours = (time.time() - ended_s) / 3600
    if hours > STALE_ROUNDS * every_s / 3600:
        raise TrainingError(f"the last round ended {hours:.0f} hours ago")
