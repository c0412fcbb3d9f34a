"""nextitem-serve with an engine that falls ill: `--ailment FILE`, beside the options of nextitem-serve with one worker.

What FILE says when a run of the graph begins is what becomes of it: `slow SECONDS`, `raise` or `nan`; empty or not
there, the engine is well.
"""

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

from service.cli import main

_run = onnxruntime.InferenceSession.run


def fall_ill(file: Path) -> None:
    """From here on, what the file says becomes of every run in this process."""

    def run(session: onnxruntime.InferenceSession, *arguments: Any, **options: Any) -> Sequence[Any]:  # noqa: ANN401 - as there
        ailment, _, seconds = file.read_text().partition(" ") if file.exists() else ("", "", "")
        if ailment == "raise":
            raise RuntimeError("ill")
        if ailment == "slow":
            time.sleep(float(seconds))
        answer: Sequence[Any] = _run(session, *arguments, **options)
        if ailment == "nan":
            return [np.full_like(part, np.nan) if part.dtype.kind == "f" else part for part in answer]
        return answer

    onnxruntime.InferenceSession.run = run


if __name__ == "__main__":
    parser = argparse.ArgumentParser(allow_abbrev=False, add_help=False)
    parser.add_argument("--ailment", type=Path, required=True)
    given, rest = parser.parse_known_args()
    fall_ill(given.ailment)
    sys.exit(main(rest))
