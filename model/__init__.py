"""The agreement between trainer and server: what a recommender is.

ONNX Runtime's Linux wheels upload telemetry unless this variable says no before the import. Every room imports this
package first, so this is the one place that says it (docs/decisions/0003).
"""

import os

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
