"""Whether an installed package works as users run it: `python deploy/release.py FOLDER CLIENT`.

By its environment's Python. In FOLDER, with the two commands alone and none of the repository's code: help, a small
fit, its bundle, and the service with two workers and the archiver, which shows its console, stores an event and answers
from the model; last, a program that imports nextitem.training. CLIENT is the Python of another environment, which has
the extra `client` alone: the client there asks that service. All the while other packages that are called as our rooms
are can be imported, and must not be. Standard library only.
"""

import importlib.metadata
import json
import os
import random
import re
import shlex
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path

COMMAND_LIMIT_S = 300
READY_LIMIT_S = 120
TRIES = 20
FOREIGN = ("model", "service", "training")
SMALL = ("train.device=cpu", "train.epochs=1", "model.width=8", "model.layers=1", "model.heads=1")

CLIENT = """
import sys
from nextitem.client import Client
with Client(sys.argv[1]) as client:
    receipt = client.record(user_id="u2", item_id="i02")
    answer = client.recommend(user_id="u2", k=3, timeout_ms=2000, after=receipt)
try:
    import model
except ImportError as error:
    print(receipt.accepted, answer.count, error)
"""
"""What an application does; its own `model` is still found first."""

NOTEBOOK = """
import sys
from nextitem.training import open_run
before = list(sys.path)
lists = open_run("run", "log.csv").recommend(["u1"], k=3)
print(len(lists), "service" in sys.modules, sys.path == before)
"""
"""What somebody's notebook does with the run."""


class ReleaseFailed(Exception):
    """The package does not do what it should; the message says what."""


def run(folder: Path, *command: str) -> str:
    """What a command of the environment, or one with a path, prints. Raises ReleaseFailed when it fails."""
    words = [str(Path(sys.executable).parent / command[0]), *command[1:]]
    try:
        found = subprocess.run(  # noqa: S603 - ours
            words, cwd=folder, env=_clean(folder), capture_output=True, text=True, timeout=COMMAND_LIMIT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ReleaseFailed(f"`{shlex.join(command)}` did not run to its end: {error}") from error
    if found.returncode:
        raise ReleaseFailed(f"`{shlex.join(command)}` ended with status {found.returncode}: {found.stderr.strip()}")
    return found.stdout


def require_own_name() -> None:
    """Raises ReleaseFailed where the package brings other importable names than its own."""
    found = importlib.metadata.files("nextitem") or []
    names = {path.parts[0] for path in found if path.suffix == ".py"}
    if names != {"nextitem"}:
        raise ReleaseFailed(
            f"the package brings {', '.join(sorted(names)) or 'no code'} where it should bring nextitem"
        )


def write_foreign_packages(folder: Path) -> None:
    """Packages that are called as our rooms are, and say so to whoever imports them."""
    for name in FOREIGN:
        package = folder / "foreign" / name
        package.mkdir(parents=True)
        (package / "__init__.py").write_text(f"raise ImportError('this {name} is another package')\n")


def write_log(path: Path) -> None:
    """Forty users who walk round thirty items."""
    draw = random.Random(1)  # noqa: S311 - no secret
    lines = ["user,item,timestamp"]
    for user in range(40):
        start = draw.randrange(30)
        lines += [f"u{user},i{(start + step) % 30:02},{1_700_000_000 + step}" for step in range(10)]
    path.write_text("\n".join(lines) + "\n")


def try_client(folder: Path, python: str, url: str) -> None:
    """Store an event and ask by the client of another environment. Raises ReleaseFailed."""
    said = run(folder, str(Path(python).absolute()), "-P", "-c", CLIENT, url).strip()
    if said != "1 3 this model is another package":
        raise ReleaseFailed(f"the client did not do what it should: {said}")


def try_notebook(folder: Path) -> None:
    """Ask the run for a list from a program that is not ours. Raises ReleaseFailed."""
    said = run(folder, sys.executable, "-P", "-c", NOTEBOOK).strip()
    if said != "3 False True":
        raise ReleaseFailed(f"nextitem.training did not do what it should: {said}")


def try_service(folder: Path, client: str) -> None:
    """Start it with two workers and the archiver, store events, ask, and stop it. Raises ReleaseFailed."""
    options = ["--bundle", "bundles", "--data-dir", "store", "--archive-dir", "archive", "--workers", "2"]
    options += ["--port", "0"]
    log = folder / "service.log"
    with log.open("wb") as output:
        service = subprocess.Popen(  # noqa: S603 - ours
            [str(Path(sys.executable).parent / "nextitem-serve"), *options],
            cwd=folder,
            env=_clean(folder),
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        url = _wait_until_ready(log, service)
        _load_console(url)
        event = {"user_id": "u1", "item_id": "i01"}
        receipt = _post(f"{url}/events", {"events": [event]})
        if receipt.get("accepted") != 1:
            raise ReleaseFailed(f"POST /events did not store an event: {receipt}")
        for _ in range(TRIES):  # on a busy machine the first ones may be late
            answer = _post(f"{url}/recommend", {"user_id": "u1", "timeout_ms": 2000})
            if answer.get("source") == "model":
                break
        else:
            raise ReleaseFailed(f"POST /recommend was not answered by the model: {answer}")
        try_client(folder, client, url)
        service.send_signal(signal.SIGTERM)
        if status := service.wait(READY_LIMIT_S):
            raise ReleaseFailed(f"the service ended with status {status}")
    except subprocess.TimeoutExpired as error:
        raise ReleaseFailed(f"the service did not stop within {READY_LIMIT_S} s") from error
    finally:
        service.kill()
        service.wait()
    if "The archiver ended" in log.read_text() or "The archiver could not" in log.read_text():
        raise ReleaseFailed(f"the archiver does not run: see {log}")


def main(words: Sequence[str]) -> int:
    """All of it; 1 and a sentence where something fails."""
    folder, client = Path(words[0]).resolve(), words[1]
    folder.mkdir(parents=True)
    try:
        require_own_name()
        write_foreign_packages(folder)
        for name in ("nextitem-serve", "nextitem-train"):
            run(folder, name, "--help")
        write_log(folder / "log.csv")
        settings = [part for setting in SMALL for part in ("--set", setting)]
        run(folder, "nextitem-train", "fit", "bert4rec-small", "--data", "log.csv", "--out", "run", *settings)
        run(folder, "nextitem-train", "publish", "run", "--out", "bundles")
        try_service(folder, client)
        try_notebook(folder)
    except ReleaseFailed as error:
        sys.stderr.write(f"The release does not work: {error}\n")
        return 1
    sys.stdout.write(
        "Both commands, client and nextitem.training work: help, fit, publish, service with two workers and archiver\n"
    )
    return 0


def _clean(folder: Path) -> dict[str, str]:
    """The environment without what would lead to our code elsewhere, and with the foreign packages."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "NEXTITEM_"))}
    return kept | {"PYTHONPATH": str(folder / "foreign")}


def _wait_until_ready(log: Path, service: subprocess.Popen[bytes]) -> str:
    """The service's address, once it is ready. Raises ReleaseFailed."""
    deadline = time.monotonic() + READY_LIMIT_S
    while time.monotonic() < deadline and service.poll() is None:
        for line in log.read_text().splitlines():
            _, found, rest = line.partition(" at http://")
            url = "http://" + rest.split(",")[0].split('"')[0].strip()
            if found and _is_ready(url):
                return url
        time.sleep(0.2)
    status = service.poll()
    how = f"was not ready within {READY_LIMIT_S} s" if status is None else f"ended at once with status {status}"
    raise ReleaseFailed(f"the service {how}: {log.read_text().strip()[-2000:]}")


def _is_ready(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/health/ready", timeout=10) as answer:  # noqa: S310 - http, by the line above
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False


def _load_console(url: str) -> None:
    """Get the console's page and everything that it names. Raises ReleaseFailed."""
    names = re.findall(r'(?:href|src)="(console/[^"]+)"', _get(f"{url}/"))
    if not any(name.endswith("/app.js") for name in names):
        raise ReleaseFailed("the page at / is not the console")
    for name in names:
        _get(f"{url}/{name}")


def _get(url: str) -> str:
    """The text at an address. Raises ReleaseFailed."""
    try:
        with urllib.request.urlopen(url, timeout=30) as answer:  # noqa: S310 - http, as the log has it
            return str(answer.read().decode())
    except (OSError, ValueError) as error:
        raise ReleaseFailed(f"GET {url} failed: {error}") from error


def _post(url: str, document: object) -> dict[str, object]:
    """The answer to a JSON document. Raises ReleaseFailed."""
    content = json.dumps(document).encode()
    request = urllib.request.Request(url, content, {"Content-Type": "application/json"})  # noqa: S310
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310
            return dict(json.load(answer))
    except urllib.error.HTTPError as error:
        raise ReleaseFailed(f"POST {url} got {error.code}: {error.read().decode()}") from error
    except (OSError, ValueError) as error:
        raise ReleaseFailed(f"POST {url} failed: {error}") from error


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
