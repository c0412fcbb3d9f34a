"""The error of a log file that cannot be read."""


class LogError(ValueError):
    """A log file, or an option for reading it, breaks a rule.

    The message is one plain sentence that names the file, the line if there is one, and what to do. It never holds a
    whole line of the file.
    """
