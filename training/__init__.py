"""Makes bundles: logs, training, evaluation and publishing."""

import model as model  # its first line turns ONNX Runtime's telemetry off
