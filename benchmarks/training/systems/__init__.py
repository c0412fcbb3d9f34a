"""A script a trainer, run in that trainer's environment: `python -m benchmarks.training.systems.NAME FOLDER`."""
