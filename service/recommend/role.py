"""What a model is to its answers: champion or candidate of a generation. It may change while the model is at work."""

from dataclasses import dataclass

from model.contract.deployment.document import VariantName
from service.recommend.recommendation_id import RecommendationIds


@dataclass(frozen=True, slots=True)
class Role:
    """A role, and the ids that tell of it."""

    name: VariantName
    generation: int
    ids: RecommendationIds

    def make_id(self, user_id: str | None, *, from_model: bool) -> str:
        """An id for an answer to a user. Without one nobody's events can claim it."""
        return self.ids.make(user_id, generation=self.generation, variant=self.name, from_model=from_model)
