"""Who answers: the variants in use, as one immutable object. A swap exchanges the one reference to it."""

from dataclasses import dataclass

from service.recommend.variant import Variant


@dataclass(frozen=True, eq=False)
class Variants:
    """The variants of one generation of the deployment. `candidate` is None unless one answers a share of users."""

    generation: int
    champion: Variant
    candidate: Variant | None = None
    share: float = 0.0
    """Share of users that the candidate answers, 0 to 1."""
    salt: str = ""
    """Decides, with a user's id, whether the candidate answers."""

    @property
    def all(self) -> tuple[Variant, ...]:
        """The champion, and the candidate if there is one."""
        return (self.champion,) if self.candidate is None else (self.champion, self.candidate)

    @property
    def read_events(self) -> bool:
        """Whether one of them takes event features besides the items of a history."""
        return any(variant.model.reads_events for variant in self.all)

    def pick(self, _user_id: str | None) -> Variant:
        """The variant that answers a user."""
        return self.champion
