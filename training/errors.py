"""The errors of the trainer, with the exit status of the command for each.

TrainingError                1
├── InputError               2   the arguments or the input cannot be used
│   ├── DataError            2   a log or an items file breaks a rule; the message names file, line or column
│   ├── RecipeError          2   a recipe or `--set` breaks a rule; the message names the key
│   └── RunError             2   the run folder is not what the command needs
├── Diverged                 1   the loss or a score is not a finite number
├── CheckpointError          1   a checkpoint cannot be read
└── FetchError               1   a data set cannot be downloaded
"""


class TrainingError(Exception):
    """An expected failure. Its message is all that the user needs."""

    exit_code = 1


class InputError(TrainingError):
    """The arguments or the input cannot be used."""

    exit_code = 2


class DataError(InputError):
    """A data file breaks a rule."""


class RecipeError(InputError):
    """A recipe breaks a rule."""


class RunError(InputError):
    """A run folder is not what the command needs."""


class Diverged(TrainingError):
    """Training produced a loss or scores that are not finite numbers."""


class CheckpointError(TrainingError):
    """A checkpoint cannot be read."""


class FetchError(TrainingError):
    """A data set cannot be downloaded."""
