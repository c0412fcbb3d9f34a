"""POST /similar."""

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from service.api.similar import SimilarItems, SimilarRequest
from service.api.validation import Validator
from service.auth.guard import GuardedRoute, requires_scope
from service.errors import CatalogueBehind, NotFound, Overloaded
from service.http.body import BODY_PROBLEMS, RECOMMEND_MAX_BYTES, read_object
from service.http.dependencies import get_service
from service.http.disconnect import cancel_on_disconnect
from service.http.parameters import describe_body, describe_problems, refuse_query, write
from service.recommend.similar import find_similar

router = APIRouter(route_class=GuardedRoute, tags=["recommendations"])

_validate = Validator(SimilarRequest)


@router.post(
    "/similar",
    summary="Find items like others",
    response_model=SimilarItems,
    responses={**describe_problems(*BODY_PROBLEMS, NotFound, CatalogueBehind, Overloaded)},
    openapi_extra={**requires_scope("recommend"), **describe_body(SimilarRequest.__name__)},
)
async def similar(request: Request) -> Response:
    """Items of the same taste, by how alike the champion holds them; or those that it ranks next after them."""
    service = get_service(request)
    refuse_query(request)
    similar_request = _validate(await read_object(request, max_bytes=RECOMMEND_MAX_BYTES))
    with cancel_on_disconnect(request):
        answer = await find_similar(
            service.recommender,
            similar_request,
            metrics=service.metrics,
            started_s=request.scope["state"]["timer"].started,
        )
    return write(answer)
