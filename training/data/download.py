"""Archives from the network, verified by digest: over HTTP with a bar, or by pip."""

import hashlib
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

import httpx
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

from training.errors import FetchError


def download_url(url: str) -> bytes:
    """Download a URL, with a short connection timeout. Raises httpx.HTTPError."""
    timeout = httpx.Timeout(30, connect=3)
    with httpx.stream("GET", url, timeout=timeout, follow_redirects=True) as response:
        response.raise_for_status()
        content = bytearray()
        total = int(response.headers.get("content-length", 0)) or None
        with _show_download(PurePosixPath(url).name, total) as advance:
            for chunk in response.iter_bytes():
                content += chunk
                advance(len(chunk))
    return bytes(content)


@contextmanager
def _show_download(name: str, total: int | None) -> Iterator[Callable[[int], None]]:
    console = Console(stderr=True)
    columns = (TextColumn(name), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task(name, total=total)
        yield lambda size: progress.advance(task, size)


def download_wheel(requirement: str) -> bytes:
    """Download a wheel by pip, which knows its index, proxy and certificates. Raises FetchError."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-input"]
        command += ["--no-deps", "--only-binary", ":all:", "--dest", folder, requirement]
        try:
            answer = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)  # noqa: S603 - a fixed command
        except subprocess.TimeoutExpired as error:
            raise FetchError("pip took longer than 300 s") from error
        wheels = list(Path(folder).glob("*.whl"))
        if answer.returncode or not wheels:
            said = answer.stderr.strip().splitlines()
            raise FetchError(f"pip could not download {requirement} ({said[-1] if said else 'no reason given'})")
        return wheels[0].read_bytes()


def require_digest(content: bytes, sha256: str) -> bytes:
    """Return the content. Raises FetchError unless its digest is the pinned one."""
    if hashlib.sha256(content).hexdigest() != sha256:
        raise FetchError("the downloaded file has the wrong digest")
    return content
