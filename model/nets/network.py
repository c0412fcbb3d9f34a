"""What every network is: states that rank the items by one product with an item table.

Shapes: B batch, U users, T tokens, N longest history, D width, S width of a state, H heads, V items, K some items,
M rows to score, Q positions in a row. Item tables have V + 2 rows: PAD, items 1..V, MASK.
"""

from abc import ABC, abstractmethod
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from model.contract.vocabulary import PAD
from model.nets.configs import NetworkConfig
from model.nets.rules import SequentialRules

_WORTH_ALL = 64
"""Items for each one that is wanted, up to which scoring all of them and picking is quicker than looking rows up."""
_FEW = 8
"""Items of a state's own for which a batched product is slower than products added up, twice as slow for one."""


class Network(nn.Module, ABC):
    """A network whose state at a position ranks the items for that position."""

    causal: ClassVar[bool] = True
    """Whether the state at a place is made of earlier items alone, so that one pass trains every place."""
    item_bias: Tensor
    """(V), added to the scores."""

    def __init__(self, config: NetworkConfig, item_count: int) -> None:
        super().__init__()
        if item_count < 1:
            raise ValueError("item_count must be at least 1")
        self.config, self.item_count = config, item_count
        self.items = nn.Embedding(item_count + 2, config.width)

    def reset_parameters(self) -> None:
        """Draw weights from a normal of deviation 0.02 cut at 0.02 (Sun et al. 2019, section 4.3), biases 0."""
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.trunc_normal_(parameter, std=0.02, a=-0.02, b=0.02)
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.zeros_(module.bias)

    @property
    def rows(self) -> Tensor:
        """The output embeddings with those of PAD and MASK (V + 2, S), which rank nothing."""
        return self.items.weight

    @property
    def table(self) -> Tensor:
        """The output embeddings (V, S), row j for the item of index j + 1."""
        return self.rows[PAD + 1 : -1]

    def pick_rows(self, columns: Tensor) -> Tensor:
        """The output embeddings (..., S) of some items, by columns (...).

        Not by `table`, since the gradient of a slice is one more array of the table's size.
        """
        return F.embedding(columns + PAD + 1, self.rows)

    def pick_bias(self, columns: Tensor, rows: Tensor) -> Tensor:  # noqa: ARG002 - most biases are apart from the rows
        """The biases (...) of some items, by columns (...) and what `pick_rows` gives for them (..., S)."""
        return self.item_bias[columns]

    def read_head(self, hidden: Tensor) -> Tensor:
        """Make states (..., S) ready for the item table."""
        return hidden

    def score_items(self, hidden: Tensor) -> Tensor:
        """Logits of all items: states (..., S) -> (..., V), column j for the item of index j + 1."""
        return F.linear(self.read_head(hidden), self.table, self.item_bias)

    def score_columns(self, read: Tensor, columns: Tensor) -> Tensor:
        """Logits of some items: what `read_head` gives (M, S), columns (K) for all rows or (M, K) -> (M, K)."""
        if columns.dim() == 2 and self.item_count <= _WORTH_ALL * columns.shape[1]:
            return F.linear(read, self.table, self.item_bias).gather(1, columns)
        rows = self.pick_rows(columns)
        products = read @ rows.t() if columns.dim() == 1 else _multiply_own(read, rows)
        return products + self.pick_bias(columns, rows)


def _multiply_own(read: Tensor, rows: Tensor) -> Tensor:
    """The products (M, K) of states (M, S) with rows (M, K, S) of their own."""
    if rows.shape[1] < _FEW:
        return (read[:, None] * rows).sum(dim=-1)
    return torch.bmm(rows, read[:, :, None])[:, :, 0]


class SequenceNetwork(Network):
    """Ranks from a history alone, whosever it is: it can be exported and served.

    With `tie_embeddings` the items that are read and those that are ranked share their embeddings.
    """

    event_inputs: tuple[str, ...] = ()
    """The event features that it reads, by the names of model/contract/event_inputs.py; most networks read none."""
    rules: SequentialRules | None
    """Added to the scores of `forward` once they are counted; training knows nothing of them."""

    def __init__(self, config: NetworkConfig, item_count: int, *, tie_embeddings: bool) -> None:
        super().__init__(config, item_count)
        self.rules = None
        self.tie_embeddings = tie_embeddings
        if not tie_embeddings:
            self.outputs = nn.Embedding(item_count + 2, config.width)

    @property
    def rows(self) -> Tensor:
        """The output embeddings with those of PAD and MASK (V + 2, D), which rank nothing."""
        return self.items.weight if self.tie_embeddings else self.outputs.weight

    @abstractmethod
    def encode(self, item_ids: Tensor, lengths: Tensor, at: Tensor | None = None, *events: Tensor) -> Tensor:
        """Take right-aligned item_ids (B, T), T <= N, and lengths (B). Returns states (B, T, D), any at padding.

        With `at` (B, Q) only the states at these positions: (B, Q, D), which may spare work. Events (B, T) are those of
        `event_inputs` in their order, or none at all.
        """

    def forward(self, item_ids: Tensor, lengths: Tensor, *events: Tensor) -> Tensor:
        """Scores of all items after each history that ends in [mask]: (B, T), (B), more (B, T) -> (B, V)."""
        scores = self.score_items(self.encode(item_ids, lengths, None, *events)[:, -1])
        return scores if self.rules is None else scores + self.rules(item_ids)[:, PAD + 1 : -1]


class UserNetwork(Network):
    """Ranks for the users of its log alone, whom it knows by number: it is evaluated offline and cannot be served."""

    def __init__(self, config: NetworkConfig, item_count: int, user_count: int) -> None:
        super().__init__(config, item_count)
        self.users = nn.Embedding(user_count, config.width)

    @abstractmethod
    def encode(self, item_ids: Tensor, lengths: Tensor, users: Tensor) -> Tensor:
        """Take right-aligned item_ids (B, T), lengths (B) and their users (B). Returns states (B, T, S)."""

    def forward(self, item_ids: Tensor, lengths: Tensor, users: Tensor) -> Tensor:
        """Scores of all items after each user's history that ends in [mask]: (B, T), (B), (B) -> (B, V)."""
        return self.score_items(self.encode(item_ids, lengths, users)[:, -1])


def mark_real(item_ids: Tensor, lengths: Tensor) -> Tensor:
    """Which tokens (B, T) of right-aligned rows are no padding."""
    return _count_back(item_ids) <= lengths[:, None]


def shift_right(item_ids: Tensor, lengths: Tensor, mask: int) -> Tensor:
    """What stands before each token of right-aligned rows (B, T), `mask` before the first one of each."""
    return torch.where(_count_back(item_ids) == lengths[:, None], mask, item_ids.roll(1, dims=1))


def _count_back(item_ids: Tensor) -> Tensor:
    """T to 1 (T): which token from the end stands in each column.

    Counted down by one operator: in the exported graph, arithmetic of T with `lengths` would mix what is worked out on
    the CPU with what is on a GPU, and the copy between them keeps it from being captured (docs/decisions/0012).
    """
    return torch.arange(item_ids.shape[1], 0, -1, device=item_ids.device)


def pick_positions(x: Tensor, at: Tensor) -> Tensor:
    """Rows of x (B, T, D) at positions (B, Q): (B, Q, D). By flat rows, whose gradient is added up a row at a time."""
    B, T, D = x.shape
    rows = at + torch.arange(0, B * T, T, device=at.device)[:, None]
    return x.flatten(0, 1).index_select(0, rows.flatten()).view(B, -1, D)
