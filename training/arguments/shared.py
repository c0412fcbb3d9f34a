"""What several commands share: how texts become values, and an option."""

import argparse
import math

from training.arguments.names import PROTOCOLS, find_protocol_code

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


def split(text: str) -> tuple[str, ...]:
    """The parts of a list with commas, each once. Raises ArgumentTypeError, as all of these do."""
    parts = tuple(dict.fromkeys(part for part in text.split(",") if part))
    if not parts:
        raise argparse.ArgumentTypeError("the list is empty")
    return parts


def split_protocols(text: str) -> tuple[str, ...]:
    """The codes of protocols by their codes or names."""
    return tuple(dict.fromkeys(read_protocol(part) for part in split(text)))


def read_protocol(text: str) -> str:
    """The code of a protocol by its code or name."""
    code = find_protocol_code(text)
    if code is None:
        raise argparse.ArgumentTypeError(f"there is no protocol {text}: known are {PROTOCOLS}")
    return code


def split_seeds(text: str) -> tuple[int, ...]:
    """Seeds, whole numbers."""
    parts = split(text)
    if not all(part.isdecimal() for part in parts):
        raise argparse.ArgumentTypeError("seeds are whole numbers from 0")
    return tuple(map(int, parts))


def read_seconds(text: str) -> float:
    """A number of seconds above 0."""
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < math.inf:
        raise argparse.ArgumentTypeError("seconds are a number above 0")
    return seconds


def read_minutes(text: str) -> float:
    """A number of minutes above 0."""
    try:
        return read_seconds(text)
    except argparse.ArgumentTypeError as error:
        raise argparse.ArgumentTypeError("minutes are a number above 0") from error


def read_count(text: str) -> int:
    """A whole number from 1."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError("a whole number from 1")
    return int(text)


def read_duration(text: str) -> float:
    """Seconds of a duration such as 24h."""
    unit = _UNITS.get(text[-1:])
    if unit is None:
        raise argparse.ArgumentTypeError("a time is a number with s, m, h or d behind it, such as 24h")
    return unit * read_seconds(text[:-1])


def add_discount(parser: argparse.ArgumentParser) -> None:
    """Add --popularity-discount."""
    parser.add_argument(
        "--popularity-discount",
        type=float,
        metavar="X",
        help="rank with this model.popularity_discount instead of the run's",
    )
