"""Which users a candidate answers: a hash of the user id, so that all processes agree without storing anything."""

from hashlib import blake2b

from model.contract.deployment.document import VariantName

_HASHES = 2**64


def assign(user_id: str | None, *, salt: str, share: float) -> VariantName:
    """The variant that answers a user while the candidate has a share of all users, 0 to 1.

    A larger share adds users and moves none out; a smaller one moves out those whom the larger one added. A new salt
    chooses other users. Without a user id the champion answers: such a request has no name that it keeps.

    The judge asks the same of an event's user: who served them.
    """
    if user_id is None:
        return "champion"
    digest = blake2b(f"{salt}\0{user_id}".encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return "candidate" if int.from_bytes(digest, "big") < share * _HASHES else "champion"
