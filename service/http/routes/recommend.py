"""POST /recommend and POST /recommend/batch."""

from contextlib import aclosing

import orjson
from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from service.api.ranker import names_version
from service.api.requests import MAX_BATCH_WITH_METADATA, MAX_REQUESTS, RecommendBatchRequest, RecommendRequest
from service.api.responses import Recommendation, RecommendationBatch
from service.api.validation import Validator, require_array
from service.auth.guard import AUTH_GUARD, AuthGuard, GuardedRoute, requires_scope
from service.errors import MAX_FIELD_ERRORS, FieldError, HistoryBehind, Invalid, Overloaded, VariantUnavailable
from service.http.body import BATCH_MAX_BYTES, BODY_PROBLEMS, RECOMMEND_MAX_BYTES, read_object
from service.http.dependencies import get_service
from service.http.disconnect import cancel_on_disconnect
from service.http.parameters import describe_body, describe_problems, refuse_query, write
from service.recommend.time_slices import TimeSlices
from service.telemetry.problems import PROBLEM

router = APIRouter(route_class=GuardedRoute, tags=["recommendations"])

_validate = Validator(RecommendRequest)
_IN_A_BATCH = {"batch": True}
_TOO_MUCH_METADATA = f"requests with return_metadata must want at most {MAX_BATCH_WITH_METADATA} items together"


@router.post(
    "/recommend",
    summary="Rank the items that should come next",
    response_model=Recommendation,
    responses={**describe_problems(*BODY_PROBLEMS, HistoryBehind, VariantUnavailable, Overloaded)},
    openapi_extra={**requires_scope("recommend"), **describe_body(RecommendRequest.__name__)},
)
async def recommend(request: Request) -> Response:
    """Answer from the stored history, the given items, or both; with popular items when neither is known."""
    service = get_service(request)
    refuse_query(request)
    document = await read_object(request, max_bytes=RECOMMEND_MAX_BYTES)
    scenario = service.scenarios.find(document["scenario"]) if "scenario" in document else None
    try:
        recommend_request = _validate(document if scenario is None else scenario.fill(document))
        if recommend_request.variant is not None or names_version(recommend_request.ranker):
            _check_may_choose(request)
        timer = request.scope["state"]["timer"]
        timer.record("encode")  # reading and validating the request counts as encoding
        with cancel_on_disconnect(request):
            answer = await service.recommender.recommend(recommend_request, timer)
    except Invalid as invalid:
        if scenario is None:
            raise
        raise scenario.blame(invalid, document) from None
    if scenario is not None:
        answer["scenario"] = scenario.describe()
        service.metrics.scenarios.answered(scenario.name, answer["source"])
    if answer["degraded"] is not None:
        request.scope["state"][PROBLEM] = answer["degraded"]
    return write(answer)


@router.post(
    "/recommend/batch",
    summary="Answer many requests for recommendations at once",
    response_model=RecommendationBatch,
    responses={**describe_problems(*BODY_PROBLEMS, HistoryBehind, VariantUnavailable, Overloaded)},
    openapi_extra={**requires_scope("recommend"), **describe_body(RecommendBatchRequest.__name__)},
)
async def recommend_batch(request: Request) -> Response:
    """Answer each as POST /recommend does, in order. One that is invalid or whose history is behind fails the batch."""
    service = get_service(request)
    recommend_requests = await _read_batch(request, service.recommender.reading)
    if any(one.variant is not None for one in recommend_requests):
        _check_may_choose(request)
    started_s = request.scope["state"]["timer"].started
    with cancel_on_disconnect(request):
        async with aclosing(service.recommender.recommend_many(recommend_requests, started_s=started_s)) as answers:
            # Serialised one by one: all at once would block the loop, and as objects they take ten times the memory.
            written = []
            async for answer in answers:
                written.append(orjson.dumps(answer))
                if answer["degraded"] is not None:
                    request.scope["state"][PROBLEM] = answer["degraded"]
    return Response(b'{"responses":[%b]}' % b",".join(written), media_type="application/json")


def _check_may_choose(request: Request) -> None:
    """Raise Forbidden unless the key may choose who answers."""
    guard: AuthGuard = request.scope[AUTH_GUARD]
    guard.require_any(request, "models", "admin", what="The field variant, or a version as ranker,")


async def _read_batch(request: Request, slices: TimeSlices) -> list[RecommendRequest]:
    """Read and validate the requests of a batch. Raises BadRequest."""
    refuse_query(request)
    document = await read_object(request, max_bytes=BATCH_MAX_BYTES)
    recommend_requests: list[RecommendRequest] = []
    field_errors: list[FieldError] = []
    for index, entry in enumerate(require_array(document, "requests", most=MAX_REQUESTS)):
        await slices.pause()
        try:
            recommend_requests.append(_validate(entry, under=f"/requests/{index}", context=_IN_A_BATCH))
        except Invalid as invalid:
            field_errors += invalid.field_errors
            if len(field_errors) >= MAX_FIELD_ERRORS:
                break
    if field_errors:
        raise Invalid(field_errors)
    if sum(one.k for one in recommend_requests if one.return_metadata) > MAX_BATCH_WITH_METADATA:
        raise Invalid([FieldError("/requests", "too_many", _TOO_MUCH_METADATA)])
    return recommend_requests
