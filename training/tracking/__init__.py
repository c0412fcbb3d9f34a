"""Trainings told to TensorBoard and MLflow, where they are asked for."""
