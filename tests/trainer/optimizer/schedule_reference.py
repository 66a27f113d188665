#!/usr/bin/python3
"""Compares ddp_train's learning rates, and what they lead to, with torch's and transformers' schedules.

The decay is torch.optim.lr_scheduler's LinearLR and CosineAnnealingLR after a LambdaLR warm-up, and is also compared
with the formulas of transformers' get_linear_schedule_with_warmup and get_cosine_schedule_with_warmup. The model is
reference_run.py's.

usage: PYTHONPATH=tests/trainer schedule_reference.py DDP_TRAIN SAMPLE_TEXT
"""

import math
import sys
import tempfile

import reference_run as reference  # exits with 77 where torch is missing
import torch
from torch.optim.lr_scheduler import CosineAnnealingLR, LambdaLR, LinearLR, SequentialLR

STEPS, WARMUP, RATE, FLOOR = 12, 4, 3e-3, 0.1


def decay(shape, optimizer, steps):
    if shape == "cosine":
        return CosineAnnealingLR(optimizer, T_max=steps, eta_min=RATE * FLOOR)
    if shape == "linear":
        return LinearLR(optimizer, start_factor=1, end_factor=FLOOR, total_iters=steps)
    return LambdaLR(optimizer, lambda step: 1.0)


def torchs(shape, optimizer):
    warmup = LambdaLR(optimizer, lambda step: step / WARMUP)
    return SequentialLR(optimizer, [warmup, decay(shape, optimizer, STEPS - WARMUP)], [WARMUP])


def transformers(shape, step):
    if step < WARMUP:
        return step / max(1, WARMUP)
    progress = (step - WARMUP) / max(1, STEPS - WARMUP)
    factor = {
        "constant": 1,
        "linear": max(0.0, (STEPS - step) / max(1, STEPS - WARMUP)),
        "cosine": max(0.0, 0.5 * (1.0 + math.cos(math.pi * 0.5 * 2.0 * progress))),
    }[shape]
    return factor * (1 - FLOOR) + FLOOR if shape != "constant" else factor


def main():
    program, text = sys.argv[1:3]
    for shape in ("constant", "linear", "cosine"):
        with tempfile.TemporaryDirectory() as folder:
            weights = folder + "/model.safetensors"
            reference.trainer(program, "--steps", "1", "--lr", "0", "--batch-size", "1", "--save-model", weights)
            floor = ["--min-lr-ratio", str(FLOOR)] if shape != "constant" else []
            records = reference.trainer(
                program,
                "--steps",
                str(STEPS),
                "--batch-size",
                "8",
                "--weights",
                weights,
                "--lr",
                str(RATE),
                "--schedule",
                shape,
                "--warmup-steps",
                str(WARMUP),
                *floor,
            )
            parameters = reference.read_safetensors(weights)
        steps = [record for record in records if record["event"] == "step"]
        assert len(steps) == STEPS, records
        for parameter in parameters.values():
            parameter.requires_grad_(True)
        optimizer = torch.optim.AdamW(parameters.values(), lr=RATE, weight_decay=0.01)
        scheduler = torchs(shape, optimizer)
        for step, (record, (ids, targets)) in enumerate(zip(steps, reference.batches(text, STEPS, 8, 1))):
            rate, loss = optimizer.param_groups[0]["lr"], reference.loss_of(parameters, ids, targets)
            print(
                f"{shape} {step + 1}: {record['learning_rate']:.9f} (torch {rate:.9f}), loss {record['loss']:.9f} "
                f"({loss.item():.9f})"
            )
            assert abs(record["learning_rate"] - rate) < 1e-12
            assert abs(record["learning_rate"] - RATE * transformers(shape, step)) < 1e-12
            assert abs(record["loss"] - loss.item()) < 1e-9
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            scheduler.step()


if __name__ == "__main__":
    main()
