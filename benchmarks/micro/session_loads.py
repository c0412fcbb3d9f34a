"""What it costs the threads beside it to load a model: how long each load holds the GIL, and the memory it leaves.

`python -m benchmarks.micro.session_loads BUNDLE --times 50` loads a bundle's network so many times, frees it each time,
and prints the times of a load, the longest time that it held the GIL, and the resident memory.
"""

import argparse
import gc
import statistics
import time
from pathlib import Path

from benchmarks.harness.console import say
from model.contract.bundle import Bundle, read_bundle
from service.inference.engine import open_engine
from service.system.memory import MIB, give_back_memory, read_resident_bytes
from service.system.pauses import GilWatch


def load_once(bundle: Bundle) -> tuple[float, float, float]:
    """Seconds of a load, seconds for which it held the GIL, and MiB resident after it was freed."""
    with GilWatch() as watch:
        began_s = time.perf_counter()
        engine = open_engine(
            bundle.network,
            item_count=bundle.manifest.item_count,
            provider="cpu",
            threads=1,
            inputs=bundle.manifest.inputs,
        )
        took_s = time.perf_counter() - began_s
    del engine
    gc.collect()
    give_back_memory()
    return took_s, watch.longest_s, (read_resident_bytes() or 0) / MIB


def main(path: Path, times: int) -> None:
    """Load and print."""
    bundle = read_bundle(path)
    loads = [load_once(bundle) for _ in range(times)]
    took_ms, held_ms = ([1e3 * load[column] for load in loads] for column in (0, 1))
    resident = [load[2] for load in loads]
    say(
        f"{bundle.manifest.item_count} items, {len(bundle.network) / MIB:.1f} MiB, {times} loads: "
        f"{statistics.median(took_ms):.0f} ms a load (at most {max(took_ms):.0f}), GIL held "
        f"{statistics.median(held_ms):.0f} ms (at most {max(held_ms):.0f}, the first {held_ms[0]:.0f}); MiB resident "
        f"after load 1, 10 and the last: {resident[0]:.0f}, {resident[min(9, times - 1)]:.0f}, {resident[-1]:.0f}"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.micro.session_loads", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("bundle", type=Path, help="a bundle, or a folder of them")
    parser.add_argument("--times", type=int, default=50, help="how many loads (default: %(default)s)")
    given = parser.parse_args()
    main(given.bundle, given.times)
