"""ONNX Runtime and MLflow never get to send anything home, whichever room imports them."""

import os
import subprocess
import sys

import pytest

WATCH = """
import os, sys

class Watch:
    def find_spec(self, name, path=None, target=None):
        if name == "{library}":
            print("imported with", os.environ.get("{variable}"))
        return None

sys.meta_path.insert(0, Watch())
import {module}
"""


@pytest.mark.parametrize(
    ("module", "library", "variable", "value"),
    [
        ("service.inference.engine", "onnxruntime", "ORT_DISABLE_TELEMETRY", "1"),
        ("service.app", "onnxruntime", "ORT_DISABLE_TELEMETRY", "1"),
        ("model.export.graph", "onnxruntime", "ORT_DISABLE_TELEMETRY", "1"),
        ("training.publish.publish", "onnxruntime", "ORT_DISABLE_TELEMETRY", "1"),
        ("training.tracking.mlflow_run", "mlflow", "MLFLOW_DISABLE_TELEMETRY", "true"),
    ],
)
def test_telemetry_is_off_before_the_import(module, library, variable, value):
    """In a fresh interpreter without the variable, it is set by the time that the library is looked for."""
    environment = {name: value for name, value in os.environ.items() if name != variable}
    watched = WATCH.format(module=module, library=library, variable=variable)
    finished = subprocess.run(
        [sys.executable, "-c", watched], env=environment, capture_output=True, text=True, check=True
    )
    assert finished.stdout.strip() == f"imported with {value}"
