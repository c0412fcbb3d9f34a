"""/models: which versions there are, which of them answer and how well, and changing that."""

import errno
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from model.contract.bundle import MANIFEST
from model.contract.deployment import changes, document
from model.contract.deployment.document import Deployment, is_followed, read_deployment
from model.contract.deployment.versions import Version, list_versions
from model.contract.deployment.writer import change_deployment
from model.contract.manifest import BundleError
from service.api.deployment_requests import CandidateRequest, DeploymentRequest, ShareRequest, UseRequest
from service.api.model_responses import DeploymentDescription, ModelList, RefusedModel, VersionDescription
from service.api.operator_responses import TrialReport
from service.api.responses import Refreshed
from service.api.validation import Validator
from service.auth.audit import KEY_ID
from service.auth.guard import GuardedRoute, requires_scope
from service.errors import (
    DeploymentChanged,
    DeploymentRefused,
    FolderReadOnly,
    Invalid,
    NotFound,
    Overloaded,
)
from service.http.body import BODY_PROBLEMS, read_object
from service.http.dependencies import get_service
from service.http.parameters import describe_body, describe_problems, refuse_query, write
from service.http.trial_report import report_trial
from service.system.side_thread import SideThread

router = APIRouter(route_class=GuardedRoute, tags=["models"])

MAX_VERSIONS = 200
"""The newest of them are listed."""
BODY_MAX_BYTES = 4096
ROLES = ("champion", "candidate", "previous")

_READ_ONLY = {errno.EACCES, errno.EPERM, errno.EROFS}
_FOLDER_PROBLEMS = (NotFound, DeploymentRefused, Invalid, Overloaded)
_files = SideThread("files", limit=8)


@router.get(
    "/models",
    summary="List the versions and say which of them answer",
    response_model=ModelList,
    responses={**describe_problems(*_FOLDER_PROBLEMS)},
    openapi_extra=requires_scope("models"),
)
async def get_models(request: Request) -> Response:
    """The newest versions of the bundle folder, the deployment, and which versions may be asked for comparison."""
    refuse_query(request)
    service = get_service(request)
    rankers = service.recommender.variants.rankers
    refused = [refusal.describe() for refusal in service.followed.not_compared]
    return write(await _files.run(partial(_list_models, service.settings.bundle, rankers, refused)))


@router.get(
    "/models/trial",
    summary="Live scores, the candidate's evidence, and the last changes",
    response_model=TrialReport,
    responses={**describe_problems(*_FOLDER_PROBLEMS)},
    openapi_extra=requires_scope("models"),
)
async def get_trial(request: Request) -> Response:
    """What the judge measured of each version, the evidence in the trial, and the newest lines of the journal."""
    refuse_query(request)
    return write(await _files.run(partial(_report_trial, get_service(request).settings.bundle)))


@router.post(
    "/models/refresh",
    summary="Look at the bundle folder now",
    response_model=Refreshed,
    responses={**describe_problems(NotFound, Invalid, Overloaded)},
    openapi_extra=requires_scope("models"),
)
async def refresh_models(request: Request) -> Response:
    """Have all workers of this service compare what they serve with the bundle folder."""
    refuse_query(request)
    service = get_service(request)
    if service.watcher is None:
        raise NotFound("This service does not follow a bundle folder.")
    service.watcher.refresh()
    return write(Refreshed(status="asked"))


def _add_change(action: str, schema: type[DeploymentRequest], summary: str, says: str) -> None:
    """Add POST /models/<action>."""
    validate = Validator(schema)

    async def change_models(request: Request) -> Response:
        refuse_query(request)
        service = get_service(request)
        given = validate(await read_object(request, max_bytes=BODY_MAX_BYTES))
        key = request.scope["state"].get(KEY_ID)
        call = partial(_change, service.settings.bundle, action, given, by="http" if key is None else f"key:{key}")
        after = await _files.run(call)
        if service.watcher is not None:
            service.watcher.refresh()
        return write(_describe(after))

    change_models.__name__ = f"{action}_models"
    change_models.__doc__ = says
    router.post(
        f"/models/{action}",
        summary=summary,
        response_model=DeploymentDescription,
        responses={
            **describe_problems(
                *BODY_PROBLEMS, NotFound, DeploymentChanged, FolderReadOnly, DeploymentRefused, Overloaded
            )
        },
        openapi_extra={**requires_scope("models"), **describe_body(schema.__name__)},
    )(change_models)


for _route in (
    ("use", UseRequest, "Make a version the champion", "Make a version the one that answers."),
    ("candidate", CandidateRequest, "Put a version on trial", "Put a version on trial, in place of any candidate."),
    ("share", ShareRequest, "Change the candidate's share", "Change the share of users that the candidate answers."),
    ("promote", DeploymentRequest, "Promote the candidate", "Make the candidate the champion."),
    ("return", DeploymentRequest, "Return the candidate", "Take the candidate off trial. The champion stays."),
    ("rollback", DeploymentRequest, "Roll back", "Go back to the champion before this one. Ends any trial."),
    ("hold", DeploymentRequest, "Hold the judge", "Take verdicts from the judge."),
    ("resume", DeploymentRequest, "Let the judge decide", "Let the judge promote and return again."),
):
    _add_change(*_route)


def _require_folder(root: Path) -> None:
    if not is_followed(root):
        raise NotFound("This service serves one bundle, and no folder of them.")


def _list_models(root: Path, rankers: list[str], refused: list[RefusedModel]) -> ModelList:
    _require_folder(root)
    try:
        deployment, versions = read_deployment(root), list_versions(root)
    except (document.DeploymentError, BundleError, OSError) as error:
        raise DeploymentRefused from error
    return ModelList(
        versions=[_describe_version(version, deployment) for version in versions[-MAX_VERSIONS:]],
        deployment=_describe(deployment),
        rankers=rankers,
        refused=refused,
    )


def _report_trial(root: Path) -> TrialReport:
    _require_folder(root)
    try:
        deployment = read_deployment(root)
    except (document.DeploymentError, BundleError, OSError) as error:
        raise DeploymentRefused from error
    return report_trial(root, deployment)


def _change(root: Path, action: str, given: DeploymentRequest, *, by: str) -> Deployment:
    _require_folder(root)
    fields: dict[str, Any] = given.model_dump(exclude={"if_generation"})
    version = fields.get("version")
    if version is not None and not (root / version / MANIFEST).is_file():
        raise NotFound("There is no such version in the bundle folder.")
    share = fields.pop("share", None)
    wish = changes.Wish(action=action, share=share if share or action == "share" else None, **fields)
    return _translating(
        lambda: change_deployment(
            root, wish.to_change(), action=action, by=by, why=given.why, if_generation=given.if_generation
        )
    )


def _translating(call: Callable[[], Deployment]) -> Deployment:
    """The call's result; its exceptions as problems, none of which holds a path or what was sent."""
    try:
        return call()
    except document.DeploymentConflict as error:
        raise DeploymentChanged from error
    except document.DeploymentRefused as error:
        raise DeploymentRefused(f"The change was refused: {error}.") from error
    except document.DeploymentError as error:
        raise DeploymentRefused from error
    except BundleError as error:
        raise DeploymentRefused("A version that the change names cannot be read as a bundle.") from error
    except OSError as error:
        if error.errno in _READ_ONLY:
            raise FolderReadOnly from error
        raise DeploymentRefused(f"The bundle folder cannot be written: {error.strerror}.") from error


def _describe(deployment: Deployment) -> DeploymentDescription:
    return DeploymentDescription(
        generation=deployment.generation,
        champion=deployment.champion,
        candidate=deployment.candidate,
        mode=deployment.mode,
        share=deployment.share,
        previous=deployment.previous,
        judged=deployment.trial.auto,
        at=deployment.at,
        by=deployment.by,
    )


def _describe_version(version: Version, deployment: Deployment) -> VersionDescription:
    manifest = version.manifest
    roles: dict[str | None, Any] = {getattr(deployment, role): role for role in reversed(ROLES)}
    return VersionDescription(
        version=version.name,
        role=roles.get(version.name),
        trained_at=manifest.trained_at if manifest else None,
        item_count=manifest.item_count if manifest else None,
        metrics=dict(manifest.metrics) if manifest else None,
    )
