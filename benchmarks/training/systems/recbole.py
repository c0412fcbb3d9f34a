"""RecBole's BERT4Rec or SASRec, trained by its own Trainer, with its loss and its optimizer made to count.

It trains on prefixes: a history of n items gives n - 1 samples, the newest N of the first 1, 2, ... n - 1 items, padded
to N and, in BERT4Rec, masked anew. Tokens are counted each time that they pass through the network, as for the others;
`epoch_tokens` says how many there are in an epoch, so that its pace over the log follows.
"""

import sys
import tempfile
from contextlib import chdir
from pathlib import Path
from typing import Any

import numpy as np
import torch
from recbole.config import Config
from recbole.data import create_dataset, data_preparation
from recbole.model.abstract_recommender import SequentialRecommender
from recbole.model.sequential_recommender import BERT4Rec, SASRec
from recbole.trainer import Trainer
from recbole.utils import init_seed
from torch import Tensor

from benchmarks.training.systems.meter import Enough, Entry, run_system
from benchmarks.training.terms import Material, Terms
from training.data.histories import Histories

_HELD_OUT = 2
"""Its leave-one-out keeps the last two events back, so that two stand behind each training history."""


class RecBoleScorer:
    """Asks by its own `full_sort_predict`, which in BERT4Rec puts [mask] behind the newest items."""

    def __init__(self, model: SequentialRecommender, ids: dict[str, int], item_count: int, max_length: int) -> None:
        self._to_own = np.array([ids.get(str(index), 0) for index in range(item_count + 1)])
        self._to_own[0] = 0
        self._model, self._max_length, self.item_count = model, max_length, item_count

    @torch.inference_mode()
    def score(self, histories: Histories) -> Tensor:
        """Scores of all items (B, V); items that nobody has in training come last."""
        window = histories.cut_windows(self._max_length)
        x = np.zeros((len(histories), self._max_length), dtype=np.int64)
        rows, positions = np.nonzero(window.item_ids)
        lengths = window.lengths.astype(np.int64)
        left = positions - (window.item_ids.shape[1] - lengths[rows])  # its sequences begin at the left
        x[rows, left] = self._to_own[window.item_ids[rows, positions]]
        self._model.eval()
        scores: Tensor = self._model.full_sort_predict(
            {self._model.ITEM_SEQ: torch.from_numpy(x), self._model.ITEM_SEQ_LEN: torch.from_numpy(lengths)}
        )
        self._model.train()
        own = torch.from_numpy(self._to_own[1:])
        return scores[:, own].masked_fill_(own == 0, -1e9)


def run_trainer(terms: Terms, material: Material, entry: Entry) -> None:
    """Train until the meter says enough."""
    sys.argv = sys.argv[:1]  # it reads the command line for settings of its own
    with tempfile.TemporaryDirectory() as folder, chdir(folder):  # it writes logs where it stands
        _write_log(Path(folder) / "log", material)
        entry.start_clock()
        network = {"bert4rec": BERT4Rec, "sasrec": SASRec}[terms.network]
        config = Config(model=network.__name__, dataset="log", config_dict=_configure(terms, folder))
        init_seed(terms.seed, reproducibility=False)
        dataset = create_dataset(config)
        train, _, _ = data_preparation(config, dataset)
        model = network(config, train.dataset)
        trainer = Trainer(config, model)
        samples = train.dataset.inter_feat
        scorer = RecBoleScorer(model, dataset.field2token_id["item_id"], material.item_count, terms.max_length)
        meter = entry.begin(scorer, samples=len(samples), tokens=int(samples[model.ITEM_SEQ_LEN].sum()))
        measure, tokens = model.calculate_loss, 0

        def note_batch(interaction: Any) -> Tensor:  # noqa: ANN401 - RecBole's own
            nonlocal tokens
            tokens = int(interaction[model.ITEM_SEQ_LEN].sum())
            loss: Tensor = measure(interaction)
            return loss

        def note_step(*_: object) -> None:
            if meter.step(tokens):
                raise Enough

        model.calculate_loss = note_batch
        trainer.optimizer.register_step_post_hook(note_step)
        try:
            trainer.fit(train, saved=False, verbose=False, show_progress=False)
        except Enough:
            return


def _write_log(folder: Path, material: Material) -> None:
    """RecBole's atomic file: the training histories, and behind each of them two events for it to keep back."""
    folder.mkdir()
    with (folder / "log.inter").open("w", encoding="utf-8") as file:
        file.write("user_id:token\titem_id:token\ttimestamp:float\n")
        for user, history in enumerate(material.train):
            kept_back = history[-1:].tolist() * _HELD_OUT
            for place, item in enumerate([*history.tolist(), *kept_back]):
                file.write(f"{user}\t{item}\t{place}\n")


def _configure(terms: Terms, folder: str) -> dict[str, Any]:
    given = {
        "hidden_dropout_prob": terms.dropout,
        "attn_dropout_prob": terms.dropout,
        "train_batch_size": terms.batch_size,
        "learning_rate": terms.learning_rate,
        **(
            {"mask_ratio": terms.mask_probability, "ft_ratio": terms.last_item_share}
            if terms.network == "bert4rec"
            else {}
        ),
    }
    return {
        **{key: value for key, value in given.items() if value is not None},
        "data_path": folder,
        "checkpoint_dir": folder,
        "USER_ID_FIELD": "user_id",
        "ITEM_ID_FIELD": "item_id",
        "TIME_FIELD": "timestamp",
        "load_col": {"inter": ["user_id", "item_id", "timestamp"]},
        "MAX_ITEM_LIST_LENGTH": terms.max_length,
        "n_layers": terms.layers,
        "n_heads": terms.heads,
        "hidden_size": terms.width,
        "inner_size": 4 * terms.width,
        "loss_type": "CE",
        "train_neg_sample_args": None,
        "epochs": 100_000,
        "eval_args": {"split": {"LS": "valid_and_test"}, "order": "TO", "group_by": "user", "mode": "full"},
        "use_gpu": False,
        "gpu_id": "",
        "state": "WARNING",
        "show_progress": False,
        "save_dataset": False,
        "seed": terms.seed,
    }


if __name__ == "__main__":
    run_system("recbole", "recbole", run_trainer)
