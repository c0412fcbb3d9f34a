"""What a model is to its answers: champion, candidate or beside them in a generation. It may change while it works."""

from dataclasses import dataclass

from model.contract.deployment.document import VariantName
from service.api.responses import AnsweringVariant
from service.ranking.recommendation_id import RecommendationIds


@dataclass(frozen=True, slots=True)
class Role:
    """A role, and the ids that tell of it."""

    name: AnsweringVariant
    generation: int
    ids: RecommendationIds

    def make_id(self, user_id: str | None, *, from_model: bool) -> str:
        """An id for an answer to a user. Without one nobody's events can claim it, as no comparison's ever can."""
        variant: VariantName = "candidate" if self.name == "candidate" else "champion"
        return self.ids.make(user_id, generation=self.generation, variant=variant, from_model=from_model)
