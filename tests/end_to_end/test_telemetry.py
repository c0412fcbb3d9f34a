"""ONNX Runtime and MLflow never get to send anything home, whichever room imports them."""

import os
import subprocess
import sys

import pytest

WATCH = """
import os, sys

class Watch:
    def find_spec(self, name, path=None, target=None):
        if name == "onnxruntime":
            print("imported with", os.environ.get("ORT_DISABLE_TELEMETRY"))
        return None

sys.meta_path.insert(0, Watch())
import {module}
"""


@pytest.mark.parametrize(
    "module", ["service.inference.engine", "service.app", "model.export.graph", "training.publish.publish"]
)
def test_telemetry_is_off_before_the_import(module):
    """In a fresh interpreter without the variable, it is set by the time that onnxruntime is looked for."""
    environment = {name: value for name, value in os.environ.items() if name != "ORT_DISABLE_TELEMETRY"}
    finished = subprocess.run(
        [sys.executable, "-c", WATCH.format(module=module)], env=environment, capture_output=True, text=True, check=True
    )
    assert finished.stdout.strip() == "imported with 1"
