"""What a console costs that somebody leaves open: CPU of the service and of the browser by view, in % of one core.

`python -m benchmarks.micro.open_console`: a service that nobody else asks, and a Chromium without a window, which draws
without a graphics card. What the service takes with no console open is taken off. Then how soon the first view can be
used by a browser that has nothing of it: at full speed, and with Chromium's processor slowed down four times by its
DevTools protocol; medians of some loads. `--views` without a name leaves the first part out, `--loads 0` the second.
"""

import argparse
import asyncio
import os
import shutil
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

from playwright.async_api import Browser, async_playwright

from benchmarks.harness.console import say
from benchmarks.harness.cpu_time import count_cpu, list_family
from benchmarks.harness.processes import ServiceProcess
from service.embedded.server import EmbeddedStore

BUNDLE: Final = Path("tests/serving/bundle")
VIEWS: Final = ("try", "compare", "users", "items", "models", "live", "health", "hidden")
"""The views by name, and Live in a tab that nobody sees."""
FLAGS: Final = ("--no-sandbox", "--disable-gpu", "--disable-quic", "--disable-background-networking")
WARM_UP_S: Final = 5.0
HIDE: Final = """() => {
  Object.defineProperty(document, 'hidden', {value: true});
  document.dispatchEvent(new Event('visibilitychange'));
}"""
USABLE: Final = """() => new Promise((resolve) => {
  const look = () => document.querySelector("ol.ranked > li") && document.querySelector("#search")
    ? resolve(performance.now()) : setTimeout(look, 1);
  look();
})"""
"""Milliseconds from the navigation to the list on screen, beside the search."""


async def measure(service: ServiceProcess, browser: Browser, name: str, seconds: float) -> tuple[float, float]:
    """CPU of the service and of the browser while a view is open; `hidden`: Live in a tab that nobody sees."""
    page = await browser.new_page()
    if name != "nothing":
        await page.goto(f"{service.url}/#{'live' if name == 'hidden' else name}")
        await page.wait_for_selector("main")
    if name == "hidden":
        await page.evaluate(HIDE)
    await asyncio.sleep(WARM_UP_S)
    processes = (service.process_id, _find_browser())
    before = [count_cpu(process) for process in processes]
    await asyncio.sleep(seconds)
    service_cpu, browser_cpu = (
        (count_cpu(process) - used) / seconds for process, used in zip(processes, before, strict=True)
    )
    await page.close()
    return service_cpu, browser_cpu


def _find_browser() -> int:
    """The browser's first process, which playwright's driver has started."""
    for process in list_family(os.getpid()):
        if b"--remote-debugging-pipe" in Path(f"/proc/{process}/cmdline").read_bytes():
            return process
    raise RuntimeError("no browser runs")


async def time_loads(service: ServiceProcess, browser: Browser, slowed: int, loads: int) -> list[float]:
    """Milliseconds until the first view can be used, by loads, each by a browser that has nothing of it."""
    times_ms: list[float] = []
    for _ in range(loads):
        context = await browser.new_context()
        page = await context.new_page()
        session: Any = await context.new_cdp_session(page)
        await session.send("Emulation.setCPUThrottlingRate", {"rate": slowed})
        await page.goto(f"{service.url}/", wait_until="commit")
        times_ms.append(await page.evaluate(USABLE))
        await context.close()
    return times_ms


async def show(service: ServiceProcess, browser: Browser, given: argparse.Namespace) -> None:
    """Print what each view costs, and how soon the first one can be used."""
    if given.views:
        idle, _ = await measure(service, browser, "nothing", given.seconds)
        say(f"nothing  service {100 * idle:5.2f} %")
    for name in given.views:
        cpu, drawn = await measure(service, browser, name, given.seconds)
        say(f"{name:8} service {100 * (cpu - idle):+5.2f} %   browser {100 * drawn:5.2f} %")
    for slowed in (1, 4) if given.loads else ():
        times_ms = await time_loads(service, browser, slowed, given.loads)
        say(
            f"usable after {statistics.median(times_ms):.0f} ms ({min(times_ms):.0f} to {max(times_ms):.0f}), "
            f"slowed {slowed} times, {given.loads} loads"
        )


async def main(given: argparse.Namespace, folder: Path) -> int:
    """Measure and print; the exit status."""
    with EmbeddedStore(folder / "data") as store:
        options = ("--workers", str(given.workers), "--drain-delay-s", "0")
        service = ServiceProcess(store.url, given.bundle, folder / "service.log", *options)
        await service.start()
        try:
            async with async_playwright() as playwright:
                browser = await playwright.chromium.launch(executable_path=shutil.which("chromium"), args=[*FLAGS])
                await show(service, browser, given)
                await browser.close()
        finally:
            await service.stop()
    return 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.micro.open_console", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("--seconds", type=float, default=30.0, help="for each view (%(default)s)")
    parser.add_argument("--views", nargs="*", choices=VIEWS, default=VIEWS, help="all if left out")
    parser.add_argument("--loads", type=int, default=5, help="of the first view, at each speed (%(default)s)")
    parser.add_argument("--workers", type=int, default=2, help="of the service (%(default)s)")
    parser.add_argument("--bundle", type=Path, default=BUNDLE, help="what is served (%(default)s)")
    with tempfile.TemporaryDirectory() as name:
        sys.exit(asyncio.run(main(parser.parse_args(), Path(name))))
