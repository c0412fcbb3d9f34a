"""nextitem-serve with a faulty engine: `--fault-file FILE`, beside the options of nextitem-serve with one worker.

Each run of the graph reads FILE when it begins: `slow SECONDS`, `raise`, `raise RUNS` or `nan`. With a number of RUNS,
so many fail from when the file was written on. The engine works normally while the file is empty or missing.
`others slow SECONDS` and its like spare the session that ran first, the champion's.
"""

import argparse
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

from service.cli import main

_run = onnxruntime.InferenceSession.run


def inject_faults(file: Path) -> None:
    """Apply the fault that the file names to every run of this process from here on."""
    raised = Counter[int]()
    first: list[onnxruntime.InferenceSession] = []

    def run(session: onnxruntime.InferenceSession, *arguments: Any, **options: Any) -> Sequence[Any]:  # noqa: ANN401 - as there
        if not first:
            first.append(session)
        said = file.read_text() if file.exists() else ""
        if said.startswith("others "):
            said = "" if session is first[0] else said.removeprefix("others ")
        fault, _, number = said.partition(" ")
        if fault == "raise":
            written_ns = file.stat().st_mtime_ns
            raised[written_ns] += 1
            if not number or raised[written_ns] <= int(number):
                raise RuntimeError("injected")
        if fault == "slow":
            time.sleep(float(number))
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
