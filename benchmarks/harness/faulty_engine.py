"""nextitem-serve with a faulty engine: `--fault-file FILE`, beside the options of nextitem-serve with one worker.

Each run of the graph reads FILE when it begins: `slow SECONDS`, `raise` or `nan`. The engine works normally while the
file is empty or missing.
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


def inject_faults(file: Path) -> None:
    """Apply the fault that the file names to every run of this process from here on."""

    def run(session: onnxruntime.InferenceSession, *arguments: Any, **options: Any) -> Sequence[Any]:  # noqa: ANN401 - as there
        fault, _, seconds = file.read_text().partition(" ") if file.exists() else ("", "", "")
        if fault == "raise":
            raise RuntimeError("injected")
        if fault == "slow":
            time.sleep(float(seconds))
        answer: Sequence[Any] = _run(session, *arguments, **options)
        if fault == "nan":
            return [np.full_like(part, np.nan) if part.dtype.kind == "f" else part for part in answer]
        return answer

    onnxruntime.InferenceSession.run = run


if __name__ == "__main__":
    parser = argparse.ArgumentParser(allow_abbrev=False, add_help=False)
    parser.add_argument("--fault-file", type=Path, required=True)
    given, rest = parser.parse_known_args()
    inject_faults(given.fault_file)
    sys.exit(main(rest))
