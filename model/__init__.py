"""The agreement between trainer and server: what a recommender is.

Some libraries read a variable once, when they are loaded. Every room imports this package first, so this is the one
place that sets them, unless they are set already (docs/decisions/0003):

- ONNX Runtime's Linux wheels upload telemetry, unless this says no, and so does MLflow (`fit --mlflow`).
- OpenMP's threads spin while they wait, for milliseconds, unless this says sleep. PyTorch trains with them: beside one
  busy process, two such threads on two cores train at a third of the speed of sleeping ones, or less. Threads that
  sleep at once train at half the speed on a quiet machine, so they spin for some ten microseconds first.
"""

import os

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
if os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE").upper() == "PASSIVE":
    os.environ.setdefault("GOMP_SPINCOUNT", "20000")
