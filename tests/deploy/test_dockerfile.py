"""The Dockerfile without an engine: its lint, what it copies, what it names. docs/guarantees.md says what was built."""

import ast
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from deploy.floors import read_constraints

REPOSITORY = Path(__file__).parents[2]


def copied(instructions: list[str]) -> list[str]:
    """What a stage copies from the build context."""
    copies = [line.split()[1:-1] for line in instructions if line.startswith("COPY ") and "--from" not in line]
    return [source for sources in copies for source in sources]


def test_lint_is_clean(require_tool: Callable[[str], str]) -> None:
    """Hadolint has nothing to say."""
    answer = subprocess.run(
        [require_tool("hadolint"), "Dockerfile"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (answer.returncode, answer.stdout) == (0, "")


def test_old_builders_understand_it() -> None:
    """Docker 20.10 builds it: no frontend to pull, no heredoc, no linked copy, no start interval."""
    text = (REPOSITORY / "Dockerfile").read_text()
    assert re.findall(r"^#\s*syntax=|<<[A-Z-]|COPY --link|--start-interval|--parents", text, re.MULTILINE) == []


def test_context_is_exactly_what_is_copied(stages: dict[str, list[str]]) -> None:
    """.dockerignore lets in what some stage copies and nothing else: no .git, .venv, artifacts, .cache or secret."""
    lines = [line for line in (REPOSITORY / ".dockerignore").read_text().splitlines() if line and line[0] != "#"]
    assert lines[0] == "*"
    let_in = {line.removeprefix("!") for line in lines if line.startswith("!")}
    assert let_in == {source.split("/")[0] for stage in stages.values() for source in copied(stage)}
    assert [line for line in lines[1:] if not line.startswith("!")] == ["**/__pycache__"]
    assert all((REPOSITORY / source).exists() for stage in stages.values() for source in copied(stage))


def test_packages_do_not_depend_on_code(stages: dict[str, list[str]]) -> None:
    """What is installed changes with the project file and the constraints only, so that code rebuilds in seconds."""
    assert copied(stages["build"]) == ["pyproject.toml", "constraints.txt"]
    for name in ("service-packages", "training-packages"):
        assert stages[name][0] == f"FROM build AS {name}"
        assert copied(stages[name]) == []
    for target in ("service", "training"):
        order = [line for line in stages[target] if line.startswith("COPY --from=")]
        assert order[0] == f"COPY --from={target}-packages /opt/nextitem /opt/nextitem"
        assert order[-1] == "COPY --from=code /code /"


def test_extras_exist(stages: dict[str, list[str]]) -> None:
    """What the images install is what the project offers."""
    extras = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert "ARG EXTRA=service" in stages["service-packages"]
    assert {"service", "service-gpu", "training"} <= set(extras)


def test_the_gpu_s_onnx_runtime_is_the_one_that_was_tested() -> None:
    """Both packages are pinned to one version; from 1.27 on PyPI's builds are for CUDA 13, as the GPU's image is."""
    pinned = read_constraints((REPOSITORY / "constraints.txt").read_text())
    assert pinned["onnxruntime-gpu"] == pinned["onnxruntime"]
    extras = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    [wanted] = [Requirement(line) for line in extras["service-gpu"] if line.startswith("onnxruntime")]
    assert wanted.name == "onnxruntime-gpu"
    assert "1.27" in wanted.specifier
    assert "1.26.9" not in wanted.specifier


def test_targets_end_unprivileged(stages: dict[str, list[str]]) -> None:
    """Both images run as 10001 and stop by the signal that their command heeds; a plain build gives the service."""
    assert list(stages)[-1] == "service"
    for target, signal in (("service", "SIGTERM"), ("training", "SIGINT")):
        assert [line for line in stages[target] if line.startswith("USER ")] == ["USER 10001:10001"]
        assert f"STOPSIGNAL {signal}" in stages[target]
    assert 'ENTRYPOINT ["nextitem-serve"]' in stages["service"]


@pytest.mark.parametrize("forbidden", ["torch", "onnx"])
def test_service_build_fails_with_the_trainer_s_packages(
    stages: dict[str, list[str]], tmp_path: Path, forbidden: str
) -> None:
    """The check of the build is run here as it stands: it passes without, and fails by name with either package."""
    [line] = [line for line in stages["service"] if line.startswith("RUN python -c")]
    code = re.fullmatch(r'RUN python -c "(.*)"', line)
    assert code is not None

    def check() -> subprocess.CompletedProcess[str]:
        # -S: without what is installed here; the folder stands for what is installed there.
        command = [sys.executable, "-S", "-E", "-c", f"import sys; sys.path.append({str(tmp_path)!r}); {code[1]}"]
        return subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=120, check=False)

    assert check().returncode == 0
    (tmp_path / forbidden).mkdir()
    (tmp_path / forbidden / "__init__.py").touch()
    failed = check()
    assert (failed.returncode, failed.stderr.strip()) == (1, forbidden)


@pytest.mark.parametrize("folders", [["include", "test", "bin", "lib"], ["include", "lib"]])
def test_what_pytorch_need_not_have_goes_whichever_build_it_is(
    stages: dict[str, list[str]], tmp_path: Path, folders: list[str]
) -> None:
    """The removal of the build is run here as it stands: the CPU's build has folders that the other has not."""
    [line] = [line for line in stages["training-packages"] if "torch/include" in line]
    torch = tmp_path / "lib" / "python3.11" / "site-packages" / "torch"
    for name in folders:
        (torch / name).mkdir(parents=True)
        for file in ("torch_shm_manager", "any"):
            (torch / name / file).touch()
    removal = line[line.index("rm -r") :].replace("/opt/nextitem", str(tmp_path))
    ended = subprocess.run(["/bin/sh", "-c", removal], capture_output=True, text=True, timeout=120, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
    left = sorted(str(path.relative_to(torch)) for path in torch.rglob("*") if path.is_file())
    kept = ["bin/torch_shm_manager"] if "bin" in folders else []
    assert left == [*kept, "lib/any", "lib/torch_shm_manager"]


def test_data_is_fetched_by_the_files_copied_for_it(stages: dict[str, list[str]], tmp_path: Path) -> None:
    """The files that the data stage copies, and the packages that it installs, are all that its command needs."""
    imported = set()
    for source in copied(stages["data"]):
        (tmp_path / source).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(REPOSITORY / source, tmp_path / source)
        for node in ast.walk(ast.parse((REPOSITORY / source).read_text())):
            if isinstance(node, ast.Import):
                imported |= {name.name.split(".")[0] for name in node.names}
            elif isinstance(node, ast.ImportFrom):
                imported.add((node.module or "").split(".")[0])
    [install] = [line for line in stages["data"] if "pip install" in line]
    assert imported - sys.stdlib_module_names - {"model", "training"} == set(
        install.split("constraints.txt ")[1].split()
    )
    [line] = [line for line in stages["data"] if " python -c " in line]
    command = re.search(r'python -c "(.*)"$', line)
    assert command is not None
    told = (
        "import training.data.movielens as m; m.fetch = lambda data_set, folder: print(m.__file__, folder, sep='\\n')"
    )
    answer = subprocess.run(
        [sys.executable, "-c", f"{told}; {command[1]}"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (answer.returncode, answer.stderr) == (0, "")
    licence, module, folder = answer.stdout.strip().rsplit("\n", 2)
    assert "research use" in licence
    assert Path(module).is_relative_to(tmp_path)
    assert folder == "/data/ml-100k"


def test_health_check_asks_a_route_of_the_service(stages: dict[str, list[str]]) -> None:
    """The path asked is one that the service has."""
    [check] = [line for line in stages["service"] if line.startswith("HEALTHCHECK")]
    path = re.search(r"'GET', '(/[a-z/]+)'", check)
    assert path is not None
    assert f'"{path[1]}"' in (REPOSITORY / "service" / "http" / "routes" / "operations.py").read_text()
