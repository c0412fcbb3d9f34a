"""Request schemas of POST /models/..., as strict as the others (requests.py)."""

from typing import Annotated, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    WithJsonSchema,
    model_validator,
)

from model.contract.deployment.document import MODES, WHY_MAX
from service.api.fields import Version
from service.api.validation import refuse

Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]


class DeploymentRequest(BaseModel):
    """The body of POST /models/promote, return, rollback, hold and resume; every field may be left out."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    why: Annotated[str, StringConstraints(max_length=WHY_MAX)] = Field(default="", description="for the journal")
    if_generation: int | None = Field(
        default=None, ge=0, description="change only a deployment of this generation; else 409"
    )


class UseRequest(DeploymentRequest):
    """The body of POST /models/use."""

    version: Version = Field(description="version that answers from now on")


class ShareRequest(DeploymentRequest):
    """The body of POST /models/share."""

    share: Share = Field(description="share of users that the candidate answers; 0 is shadow")


def _check_mode(value: str) -> str:
    if value not in MODES[1:]:
        raise refuse("enum", "must be shadow or canary")
    return value


class CandidateRequest(DeploymentRequest):
    """The body of POST /models/candidate. In canary `share` must be above 0, in shadow there is none."""

    version: Version = Field(description="version to put on trial, in place of any candidate")
    mode: Annotated[str, AfterValidator(_check_mode), WithJsonSchema({"type": "string", "enum": [*MODES[1:]]})] = Field(
        default="shadow", description="shadow: it is only scored; canary: it also answers its share of users"
    )
    share: Share = Field(default=0.0, description="share of users that it answers in canary")

    @model_validator(mode="after")
    def _check_share(self) -> Self:
        if (self.mode == "canary") != bool(self.share):
            raise refuse("share", "canary needs a share above 0, and shadow takes none")
        return self
