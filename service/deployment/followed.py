"""What a worker knows of the deployment, for GET /model and for the store."""

from dataclasses import dataclass

from model.contract.deployment.document import Deployment
from service.deployment.refusals import Refusal


@dataclass(frozen=True)
class Followed:
    """What a worker knows of the deployment."""

    follows: bool
    deployment: Deployment | None = None
    """The last one that could be read."""
    refusal: Refusal | None = None
    not_compared: tuple[Refusal, ...] = ()
    """Why versions that should be served for comparison are not."""
