"""nextitem-serve's way in: what is not installed is said in a sentence, before anything that needs it is imported."""

import sys

from model.extras import explain_missing


def main() -> int:
    """Run `nextitem-serve`; 1 without the packages of the extra `service`."""
    try:
        from service.cli import main as serve  # noqa: PLC0415 - may lack what it imports

        return serve()  # which imports what its command runs
    except ModuleNotFoundError as error:
        sys.stderr.write(explain_missing(error, "nextitem-serve", "service") + "\n")
        return 1
