"""What to tell somebody who runs a command without the packages that it needs."""

OURS = ("model", "service", "training")
OPTIONAL = {"optuna": "sweep", "tensorboard": "tracking", "mlflow": "tracking"}
"""Packages of one command or option alone, and the extra that brings each."""


def explain_missing(error: ModuleNotFoundError, program: str, extra: str) -> str:
    """One sentence for whoever started `program`. Raises the error again where one of our own modules is missing."""
    package = (error.name or "").partition(".")[0]
    if not package or package in OURS:
        raise error
    extra = OPTIONAL.get(package, extra)
    return f"{program}: it needs {package}, which is not installed here: pip install 'nextitem[{extra}]'"
