"""Serves bundles: FastAPI, Redis and ONNX Runtime, without torch."""

import model as model  # its first line turns ONNX Runtime's telemetry off
