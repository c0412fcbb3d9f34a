"""`make release` says in a sentence what an installed package does not do."""

import importlib.metadata
import subprocess
import sys
from importlib.metadata import PackagePath
from pathlib import Path

import pytest

from deploy import release


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of an environment's commands, which are ours to write."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setattr(sys, "executable", str(folder / "python"))
    pretend_installed(monkeypatch, "nextitem/__init__.py", "nextitem/_rooms/model/__init__.py", "../bin/nextitem-serve")
    return folder


def pretend_installed(monkeypatch: pytest.MonkeyPatch, *paths: str) -> None:
    """As if the package had brought these files."""
    files = [PackagePath(path) for path in paths]
    monkeypatch.setattr(importlib.metadata, "files", {"nextitem": files}.get)


def write_command(path: Path, text: str) -> None:
    """A shell script in place of a command."""
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("echo no such module >&2; exit 3", "`nextitem-serve --help` ended with status 3: no such module"),
        (None, "`nextitem-serve --help` did not run to its end"),
    ],
)
def test_a_command_that_fails_is_named(
    tmp_path: Path, environment: Path, capsys: pytest.CaptureFixture[str], text: str | None, said: str
) -> None:
    """With its status and what it said; it may not be there at all."""
    if text is not None:
        write_command(environment / "nextitem-serve", text)
    assert release.main([str(tmp_path / "folder"), "python"]) == 1
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith(f"The release does not work: {said}")
    assert shown.err.count("\n") == 1


def test_a_service_that_does_not_start_is_said_with_its_log(
    tmp_path: Path, environment: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """At once, when it ends by itself."""
    write_command(environment / "nextitem-train", "exit 0")
    write_command(environment / "nextitem-serve", '[ "$1" = --help ] || { echo "no model here"; exit 1; }')
    assert release.main([str(tmp_path / "folder"), "python"]) == 1
    said = capsys.readouterr().err
    assert "the service ended at once with status 1: no model here" in said


@pytest.mark.parametrize(
    ("paths", "said"),
    [
        (["model/__init__.py", "nextitem/__init__.py"], "the package brings model, nextitem where it should"),
        (["_editable_impl_nextitem.pth"], "the package brings no code where it should bring nextitem"),
    ],
)
def test_a_package_with_other_names_is_refused(monkeypatch: pytest.MonkeyPatch, paths: list[str], said: str) -> None:
    """It would meet, or overwrite, somebody else's."""
    pretend_installed(monkeypatch, *paths)
    with pytest.raises(release.ReleaseFailed, match=said):
        release.require_own_name()


@pytest.mark.parametrize(
    ("text", "said"),
    [("echo 1 0 found", "the client did not do what it should: 1 0 found"), ("exit 2", "ended with status 2")],
)
def test_a_client_that_does_not_work_is_said(tmp_path: Path, text: str, said: str) -> None:
    """By what it printed, or how it ended."""
    write_command(tmp_path / "python", text)
    with pytest.raises(release.ReleaseFailed, match=said):
        release.try_client(tmp_path, str(tmp_path / "python"), "http://127.0.0.1:9")


def test_foreign_packages_say_that_they_are_foreign(tmp_path: Path) -> None:
    """Whoever imports one in place of ours fails, so that the trial is one."""
    release.write_foreign_packages(tmp_path)
    command = [sys.executable, "-c", "import training"]
    environment = {"PYTHONPATH": str(tmp_path / "foreign")}
    found = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert found.returncode == 1
    assert "this training is another package" in found.stderr
