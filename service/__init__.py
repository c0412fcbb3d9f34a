"""The service: answers from model bundles with FastAPI, Redis or Valkey, and ONNX Runtime. It never imports torch."""

import model as model  # its first line turns ONNX Runtime's telemetry off
