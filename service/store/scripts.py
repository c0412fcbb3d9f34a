"""Runs write commands and Lua scripts, and checks in the same round trip that the store keeps what it acknowledges."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, Final

from redis.exceptions import RedisError, ResponseError

from service.store.durability import SAFE, DurabilityGuard, check_settings
from service.store.failures import is_users_damage
from service.store.multiplexer import Command, Multiplexer
from service.store.redis_keys import KEY_COUNT
from service.store.replies import raise_first
from service.store.status import read_settings

READ_SETTINGS: Final[Command] = ("CONFIG", "GET", *SAFE)
"""The command whose reply tells whether the store's settings are safe."""

_NO_SCRIPT: Final = "NOSCRIPT"

Call = list[str | bytes | int]
"""The keys and arguments of one run of a script."""


@dataclass(frozen=True, slots=True)
class Script:
    """A Lua script and the digest by which the server runs it."""

    text: bytes
    sha: str
    keys: int


def _read_script(name: str, *, keys: int) -> Script:
    text = files(__package__).joinpath(name).read_bytes()
    return Script(text, hashlib.sha1(text, usedforsecurity=False).hexdigest(), keys)


APPEND: Final = _read_script("append.lua", keys=KEY_COUNT)
IMPORT: Final = _read_script("import.lua", keys=KEY_COUNT)
ERASE: Final = _read_script("erase.lua", keys=KEY_COUNT + 1)
CATALOGUE: Final = _read_script("catalogue.lua", keys=3)


class ScriptRunner:
    """Runs write commands and scripts in one store. `guard` gets what the settings say about its safety."""

    def __init__(self, multiplexer: Multiplexer, guard: DurabilityGuard) -> None:
        self._multiplexer = multiplexer
        self._guard = guard
        self._safe_settings = object()
        """The last settings reply that was found safe. Comparing with it is faster than parsing the next one."""

    async def run(self, script: Script, calls: list[Call]) -> list[Any]:
        """Run a script once per call, in order, in one round trip, or in two if the server does not know the script.

        Error replies for users whose keys are damaged are returned; any other error is raised.
        """
        commands: list[Command] = [("EVALSHA", script.sha, script.keys, *call) for call in calls]
        replies = await self.ask_safely(commands)
        unknown = [index for index, reply in enumerate(replies) if _is_unknown_script(reply)]
        if unknown:  # the server's script cache is volatile; a call without its script wrote nothing
            again = [("SCRIPT", "LOAD", script.text), *(commands[index] for index in unknown)]
            for index, reply in zip(unknown, (await self.ask_safely(again))[1:], strict=True):
                replies[index] = reply
        raise_first(reply for reply in replies if not is_users_damage(reply))
        self._guard.require()
        return replies

    async def ask_safely(self, commands: Sequence[Command]) -> list[Any]:
        """The replies to write commands. With strict durability the same round trip checks the settings afterwards."""
        if not self._guard.strict:
            return await self._multiplexer.ask(commands)
        *replies, settings = await self._multiplexer.ask([*commands, READ_SETTINGS])
        if settings == self._safe_settings:
            return replies
        failed = any(isinstance(reply, RedisError) and not _is_explained(reply) for reply in replies)
        # A server that refuses everything proves nothing. Only a check of its own finds it safe again.
        if not failed:
            if unsafe := check_settings(read_settings(settings)):
                self._guard.update(unsafe)
            else:
                self._safe_settings = settings
        return replies


def _is_unknown_script(reply: object) -> bool:
    return isinstance(reply, ResponseError) and str(reply).startswith(_NO_SCRIPT)


def _is_explained(reply: object) -> bool:
    """Whether an error concerns only its own call."""
    return _is_unknown_script(reply) or is_users_damage(reply)
