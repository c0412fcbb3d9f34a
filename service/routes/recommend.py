"""POST /recommend and POST /recommend/batch."""

from typing import TypeVar

from fastapi import APIRouter
from pydantic import BaseModel, ValidationError
from starlette.requests import Request
from starlette.responses import Response

from service.answers import Recommendation, RecommendationBatch
from service.body import BATCH_MAX_BYTES, BODY_PROBLEMS, RECOMMEND_MAX_BYTES, read_object
from service.departure import cancel_on_departure
from service.errors import HistoryBehind, Invalid, Overloaded
from service.faults import list_faults
from service.gate import GuardedRoute, needs
from service.routes.exchange import describe_body, describe_problems, refuse_query, write
from service.schemas import RecommendBatchRequest, RecommendRequest
from service.wiring import get_service

T = TypeVar("T", bound=BaseModel)

router = APIRouter(route_class=GuardedRoute)


@router.post(
    "/recommend",
    summary="Rank the items that should come next",
    response_model=Recommendation,
    responses={**describe_problems(*BODY_PROBLEMS, HistoryBehind, Overloaded)},
    openapi_extra={**needs("recommend"), **describe_body(RecommendRequest.__name__)},
)
async def recommend(request: Request) -> Response:
    """Answer from the stored history, from the items given, or both; with popular items when neither helps."""
    service = get_service(request)
    ask = await _read(request, RecommendRequest, max_bytes=RECOMMEND_MAX_BYTES)
    stopwatch = request.scope["state"]["stopwatch"]
    stopwatch.lap("encode")  # to read and check a question is the first half of it
    with cancel_on_departure(request):
        answer = await service.recommender.recommend(ask, stopwatch)
    return write(answer)


@router.post(
    "/recommend/batch",
    summary="Answer many requests for recommendations at once",
    response_model=RecommendationBatch,
    responses={**describe_problems(*BODY_PROBLEMS, HistoryBehind, Overloaded)},
    openapi_extra={**needs("recommend"), **describe_body(RecommendBatchRequest.__name__)},
)
async def recommend_batch(request: Request) -> Response:
    """Answer each as POST /recommend does, in order; one that is not valid, or whose history is behind, refuses all."""
    service = get_service(request)
    asks = (await _read(request, RecommendBatchRequest, max_bytes=BATCH_MAX_BYTES)).requests
    with cancel_on_departure(request):
        answers = await service.recommender.recommend_many(asks, started_s=request.scope["state"]["stopwatch"].started)
    return write(RecommendationBatch(responses=answers))


async def _read(request: Request, schema: type[T], *, max_bytes: int) -> T:
    """What a request asks. Raises the BadRequest that says what is wrong with it."""
    refuse_query(request)
    document = await read_object(request, max_bytes=max_bytes)
    try:
        return schema.model_validate(document)
    except ValidationError as error:
        raise Invalid(list_faults(error)) from error
