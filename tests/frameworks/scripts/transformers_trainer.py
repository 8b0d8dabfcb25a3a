"""Train a small GPT-2 on sequences of tokens with Hugging Face's Trainer.

From a configuration, so without a hub:

    python transformers_trainer.py --output out
    python transformers_trainer.py --output out --accumulate 2
"""

import argparse
import json
from pathlib import Path

import torch
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments, set_seed


class Counting(Dataset[dict[str, torch.Tensor]]):
    """Sequences that count up from somewhere by somewhat, modulo the vocabulary."""

    def __init__(self, size: int, length: int, vocabulary: int) -> None:
        start = torch.arange(size).unsqueeze(1)
        stride = 1 + torch.arange(size).unsqueeze(1) % 5
        self.tokens = (start + stride * torch.arange(length)) % vocabulary

    def __len__(self) -> int:
        return len(self.tokens)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {"input_ids": self.tokens[index], "labels": self.tokens[index]}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--accumulate", type=int, default=1)
    options = parser.parse_args()

    set_seed(0)
    model = GPT2LMHeadModel(GPT2Config(vocab_size=32, n_positions=16, n_embd=16, n_layer=2, n_head=2))
    trainer = Trainer(
        model=model,
        args=TrainingArguments(
            output_dir=str(options.output),
            max_steps=options.steps,
            per_device_train_batch_size=4,
            gradient_accumulation_steps=options.accumulate,
            learning_rate=1e-2,
            warmup_steps=2,
            lr_scheduler_type="cosine",
            weight_decay=0.01,
            logging_steps=1,
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
        ),
        train_dataset=Counting(64, 16, 32),
    )
    trainer.train()
    trainer.save_model()
    (options.output / "log.json").write_text(json.dumps(trainer.state.log_history))


if __name__ == "__main__":
    main()
