"""Metrics as frames, which notebooks show."""

from collections.abc import Mapping

import polars as pl

_SCHEMA = {"model": pl.String, "metric": pl.String, "value": pl.Float64, "low": pl.Float64, "high": pl.Float64}


def tabulate(models: Mapping[str, Mapping[str, Mapping[str, float]]]) -> pl.DataFrame:
    """A row for each model and metric: its mean with the 95 % interval."""
    rows = [
        (model, name, metric["value"], metric["low"], metric["high"])
        for model, metrics in models.items()
        for name, metric in metrics.items()
    ]
    return pl.DataFrame(rows, schema=_SCHEMA, orient="row")
