"""The arrows between the rooms, read from the code itself."""

import ast
import sys
from pathlib import Path

import pytest

import model.contract

ROOMS = Path(model.contract.__file__).parents[2]
SERVED = [*sorted((ROOMS / "service").rglob("*.py")), *sorted((ROOMS / "model" / "contract").rglob("*.py"))]
RUNS_WHAT_IT_READS = {
    "pickle",
    "_pickle",
    "marshal",
    "shelve",
    "dill",
    "cloudpickle",
    "joblib",
    "torch",
    "pandas",
    "yaml",
}
CONTRACT = sorted(Path(model.contract.__file__).parent.glob("*.py"))


@pytest.mark.parametrize("path", CONTRACT, ids=lambda path: path.stem)
def test_contract_imports_numpy_and_standard_library_only(path):
    """The agreement depends on nothing that a service would not want."""
    imported = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            imported |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            imported.add(node.module or ".")  # `from . import` has no name
    foreign = {name for name in imported if name.split(".")[0] not in sys.stdlib_module_names | {"numpy"}}
    assert all(name.startswith("model.contract") for name in foreign), foreign


@pytest.mark.parametrize("path", SERVED, ids=lambda path: path.stem)
def test_nothing_served_is_unpickled(path):
    """No file that is read can run code: no pickle by any name, no array that may hold one, no eval."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = {alias.name for alias in node.names} | {getattr(node, "module", None) or ""}
            assert not {name.split(".")[0] for name in names} & RUNS_WHAT_IT_READS
        elif isinstance(node, ast.Call):
            called = getattr(node.func, "attr", getattr(node.func, "id", ""))
            assert (called, ast.unparse(node.func)) not in {("eval", "eval"), ("exec", "exec")}
            assert ast.unparse(node.func) not in {"np.load", "numpy.load", "np.fromfile"}
            if called in ("read_array", "save"):
                assert {ast.unparse(option) for option in node.keywords} == {"allow_pickle=False"}
