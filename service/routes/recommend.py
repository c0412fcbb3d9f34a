"""POST /recommend."""

from fastapi import APIRouter
from pydantic import ValidationError
from starlette.requests import Request
from starlette.responses import Response

from service.answers import Recommendation
from service.body import RECOMMEND_MAX_BYTES, read_object
from service.departure import cancel_on_departure
from service.errors import BodyTooLarge, HistoryBehind, Invalid, MalformedJson, Overloaded, UnsupportedMediaType
from service.faults import list_faults
from service.routes.exchange import describe_body, describe_problems, refuse_query, write
from service.schemas import RecommendRequest
from service.wiring import get_service

router = APIRouter()


@router.post(
    "/recommend",
    summary="Rank the items that should come next",
    response_model=Recommendation,
    responses={
        **describe_problems(MalformedJson, Invalid, BodyTooLarge, UnsupportedMediaType, HistoryBehind, Overloaded)
    },
    openapi_extra=describe_body(RecommendRequest.__name__),
)
async def recommend(request: Request) -> Response:
    """Answer from the stored history, from the items given, or both; with popular items when neither helps."""
    service = get_service(request)
    refuse_query(request)
    document = await read_object(request, max_bytes=RECOMMEND_MAX_BYTES)
    try:
        ask = RecommendRequest.model_validate(document)
    except ValidationError as error:
        raise Invalid(list_faults(error)) from error
    stopwatch = request.scope["state"]["stopwatch"]
    stopwatch.lap("encode")  # to read and check a question is the first half of it
    with cancel_on_departure(request):
        answer = await service.recommender.recommend(ask, stopwatch)
    return write(answer)
