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
            path = reference.save_initial(program, folder)
            flags = f"--batch-size 8 --weights {path} --lr {RATE} --schedule {shape} --warmup-steps {WARMUP}"
            floor = f"--min-lr-ratio {FLOOR}" if shape != "constant" else ""
            steps = reference.steps_of(program, STEPS, flags, floor)
            parameters, optimizer = reference.adamw(reference.read_safetensors(path), RATE)
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
