"""DELETE /users/{user_id}."""

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from service.auth.audit import audited
from service.auth.guard import GuardedRoute, requires_scope
from service.errors import Invalid, MethodNotAllowed, NotFound, Overloaded, StoreUnavailable
from service.http.dependencies import get_service
from service.http.parameters import PathId, check_user, describe_problems, refuse_query

router = APIRouter(route_class=GuardedRoute, tags=["users"])


@router.delete(
    "/users/{user_id:text}",
    summary="Erase a user",
    status_code=204,
    response_class=Response,
    responses={**describe_problems(NotFound, Invalid, StoreUnavailable, Overloaded)},
    openapi_extra=requires_scope("admin"),
)
async def delete_user(request: Request, user_id: PathId) -> Response:
    """Erase history, marks and log entries of a user, and reject older events from now on; 204 for any user."""
    refuse_query(request)
    path: bytes = request.scope["raw_path"]
    if path.count(b"/") > 2:
        # DELETE /users/u1/history probably means u1: no false 204. A slash in an id must be sent as %2F.
        raise MethodNotAllowed(["GET"]) if path.endswith(b"/history") else NotFound
    check_user(user_id)
    service = get_service(request)
    with audited(request, "erasure", user_id), service.erase_breaker.guard():
        await service.store.erase(user_id)
    return Response(status_code=204)
