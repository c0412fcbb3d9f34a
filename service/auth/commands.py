"""`nextitem-serve keys`: create, list and revoke API keys. Running services apply a change within seconds."""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from service.auth.key_file import NOTE_MAX, SCOPES, Scope, create_key, read_keys, revoke_keys
from service.errors import KeysUnusable
from service.settings import PREFIX

PROGRAM = "nextitem-serve keys"


def manage_keys(arguments: Sequence[str]) -> int:
    """Run the command. Returns the exit status: 1, with a message on stderr, when it fails."""
    options = _make_parser().parse_args(arguments)
    try:
        if options.what == "create":
            _create(options.keys_file, options.scopes, options.note)
        elif options.what == "list":
            _list(options.keys_file)
        else:
            revoke_keys(options.keys_file, options.ids)
            _say(f"Revoked {', '.join(options.ids)}: running services refuse such keys within seconds.")
    except KeysUnusable as error:
        _say(f"{PROGRAM}: {error}")
        return 1
    return 0


def _create(file: Path, scopes: Sequence[Scope], note: str) -> None:
    key = create_key(file, scopes, note=note)
    print(key)  # noqa: T201 - alone on stdout, so that it can be piped into a secret
    _say(f"This is the only time that the key is shown. Clients send it as: Authorization: Bearer {key[:6]}...")


def _list(file: Path) -> None:
    rows = [("id", "created", "scopes", "note")]
    rows += [(key.id, key.created, ",".join(key.scopes), key.note) for key in read_keys(file)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        print("  ".join(cells).rstrip())  # noqa: T201 - what was asked for


def _make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=PROGRAM, description=__doc__, allow_abbrev=False)
    commands = parser.add_subparsers(dest="what", required=True, metavar="create|list|revoke")
    create = commands.add_parser("create", help="create a key and print it, this one time")
    create.add_argument(
        "--scopes",
        type=_read_scopes,
        required=True,
        metavar="SCOPES",
        help=f"scopes of the key, separated by commas, out of {','.join(SCOPES)}",
    )
    create.add_argument("--note", type=_read_note, default="", help=f"who uses the key, at most {NOTE_MAX} characters")
    commands.add_parser("list", help="list all keys without their secrets")
    revoke = commands.add_parser("revoke", help="revoke keys permanently")
    revoke.add_argument("ids", nargs="+", metavar="ID", help="the part between the first two underscores of a key")
    given = os.environ.get(f"{PREFIX}KEYS_FILE")
    for command in commands.choices.values():
        command.add_argument(
            "--keys-file",
            type=Path,
            default=given or None,
            required=not given,
            help=f"API key file (default: {PREFIX}KEYS_FILE)",
        )
    return parser


def _read_scopes(text: str) -> tuple[str, ...]:
    scopes = tuple(part.strip() for part in text.split(","))
    if not set(scopes) <= set(SCOPES):
        raise argparse.ArgumentTypeError(f"must be of {', '.join(SCOPES)}, separated by commas")
    return scopes


def _read_note(text: str) -> str:
    if len(text) > NOTE_MAX or not text.isprintable():
        raise argparse.ArgumentTypeError(f"must be at most {NOTE_MAX} printable characters")
    return text


def _say(sentence: str) -> None:
    print(sentence, file=sys.stderr)  # noqa: T201 - for people; stdout is for what was asked for
