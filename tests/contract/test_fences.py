"""The arrows between the rooms, read from the code itself."""

import ast
import sys
from pathlib import Path

import pytest

import model.contract

CONTRACT = sorted(Path(model.contract.__file__).parent.glob("*.py"))


@pytest.mark.parametrize("path", CONTRACT, ids=lambda path: path.stem)
def test_contract_imports_numpy_and_standard_library_only(path):
    """The agreement depends on nothing that a service would not want."""
    imported = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            imported |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            imported.add(node.module)
    foreign = {name for name in imported if name.split(".")[0] not in sys.stdlib_module_names | {"numpy"}}
    assert all(name.startswith("model.contract") for name in foreign), foreign
