"""DELETE /users/{user_id}."""

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from service.errors import Invalid, MethodNotAllowed, NotFound, Overloaded, StoreUnavailable
from service.gate import GuardedRoute, needs
from service.routes.exchange import PathId, check_user, describe_problems, refuse_query
from service.wiring import get_service

router = APIRouter(route_class=GuardedRoute)


@router.delete(
    "/users/{user_id:text}",
    summary="Erase a user",
    status_code=204,
    response_class=Response,
    responses={**describe_problems(NotFound, Invalid, StoreUnavailable, Overloaded)},
    openapi_extra=needs("admin"),
)
async def delete_user(request: Request, user_id: PathId) -> Response:
    """Forget history, marks and log entries, and reject older events from now on; 204 whether or not there were any."""
    refuse_query(request)
    path: bytes = request.scope["raw_path"]
    if path.count(b"/") > 2:
        # Who sends /users/u1/history means u1: no 204 for what was not done. A slash in an id is sent as %2F.
        raise MethodNotAllowed(["GET"]) if path.endswith(b"/history") else NotFound
    check_user(user_id)
    service = get_service(request)
    with service.append_breaker.guard():
        await service.store.erase(user_id)
    return Response(status_code=204)
