#!/usr/bin/python3
"""Trains the tiny model in 16 bits in plain Python and compares every step with ddp_train's.

Independent: every operator's result, and every gradient that leaves one, is rounded to 16 bits here by an autograd
function; masters are fp32; the loss scale follows torch.cuda.amp.GradScaler, whose arithmetic is ported (1.13 runs it
on CUDA only). The scale and the steps left out must be the same, and losses agree to what different orders of
addition leave.

usage: PYTHONPATH=tests/trainer precision_reference.py DDP_TRAIN SAMPLE_TEXT
"""

import sys
import tempfile

import reference_run as reference  # exits with 77 where torch is missing
import torch
import torch.nn.functional as F

STEPS, BATCH, INTERVAL = 16, 8, 3
LAYERS, HIDDEN, HEADS = reference.LAYERS, reference.HIDDEN, reference.HEADS


class Rounded(torch.autograd.Function):
    """To 16 bits and back, forward and backward."""

    @staticmethod
    def forward(context, x, dtype):
        context.dtype = dtype
        return x.to(dtype).float()

    @staticmethod
    def backward(context, gradient):
        return gradient.to(context.dtype).float(), None


def loss_of(parameters, ids, targets, dtype):
    def r(x):
        return Rounded.apply(x, dtype)

    p = {name: r(parameter) for name, parameter in parameters.items()}
    mask = torch.full((ids.shape[1], ids.shape[1]), float("-inf")).triu(1)
    x = r(r(F.embedding(ids, p["wte.weight"])) + p["wpe.weight"][: ids.shape[1]])
    for i in range(LAYERS):

        def w(name):
            return p[f"h.{i}.{name}"]

        def linear(y, name):
            return r(y @ w(name + ".weight") + w(name + ".bias"))

        y = r(F.layer_norm(x, (HIDDEN,), w("ln_1.weight"), w("ln_1.bias")))
        q, k, v = linear(y, "attn.c_attn").split(HIDDEN, dim=-1)
        q, k, v = (t.view(*t.shape[:2], HEADS, HIDDEN // HEADS).transpose(1, 2) for t in (q, k, v))
        scores = r((q @ k.transpose(-1, -2)) / (HIDDEN // HEADS) ** 0.5 + mask)
        y = r(r(scores.softmax(-1)) @ v).transpose(1, 2).reshape(x.shape)
        x = r(x + linear(y, "attn.c_proj"))
        y = r(F.layer_norm(x, (HIDDEN,), w("ln_2.weight"), w("ln_2.bias")))
        y = r(F.gelu(linear(y, "mlp.c_fc"), approximate="tanh"))
        x = r(x + linear(y, "mlp.c_proj"))
    x = r(F.layer_norm(x, (HIDDEN,), p["ln_f.weight"], p["ln_f.bias"]))
    return F.cross_entropy(r(x @ p["wte.weight"].T).flatten(0, 1), targets.flatten())


class GradScaler:
    """torch.cuda.amp.GradScaler's unscale_(), step() and update(), by amp_update_scale_cuda_kernel's arithmetic."""

    def __init__(self, init_scale, growth_interval, growth_factor=2.0, backoff_factor=0.5):
        self.scale, self.tracker = torch.tensor(init_scale, dtype=torch.float32), 0
        self.interval, self.growth, self.backoff = growth_interval, growth_factor, backoff_factor

    def step(self, optimizer, parameters, dtype):
        gradients = [parameter.grad.to(dtype) for parameter in parameters]
        found_inf = not all(torch.isfinite(gradient).all() for gradient in gradients)
        inverse = self.scale.double().reciprocal().float()
        for parameter, gradient in zip(parameters, gradients):
            parameter.grad = gradient.float() * inverse
        if not found_inf:
            optimizer.step()
        if found_inf:
            self.scale, self.tracker = self.scale * self.backoff, 0
        elif self.tracker + 1 == self.interval:
            self.scale, self.tracker = self.scale * self.growth, 0
        else:
            self.tracker += 1
        return found_inf


def run(program, text, precision, dtype, initial, tolerance):
    with tempfile.TemporaryDirectory() as folder:
        path = reference.save_initial(program, folder)
        flags = f"--precision {precision} --batch-size {BATCH} --weights {path} --lr 0.003"
        scale = f"--loss-scale dynamic --initial-loss-scale {initial} --loss-scale-interval {INTERVAL}"
        steps = reference.steps_of(program, STEPS, flags, scale)
        weights = {name: value.float() for name, value in reference.read_safetensors(path).items()}
    parameters, optimizer = reference.adamw(weights, 0.003)
    scaler, skipped = GradScaler(initial, INTERVAL), 0
    for step, (record, (ids, targets)) in enumerate(zip(steps, reference.batches(text, STEPS, BATCH, 1))):
        loss, scale = loss_of(parameters, ids, targets, dtype), scaler.scale.item()
        optimizer.zero_grad()
        (loss * scaler.scale).backward()
        skipped += scaler.step(optimizer, list(parameters.values()), dtype)
        print(
            f"{precision} {step + 1}: loss {record['loss']:.6f} ({loss.item():.6f}), scale {record['loss_scale']} "
            f"({scale}), left out {record['skipped_steps']} ({skipped})"
        )
        assert abs(record["loss"] - loss.item()) < tolerance
        assert record["loss_scale"] == scale
        assert record["skipped_steps"] == skipped
    return skipped, scaler.scale.item()


def main():
    program, text = sys.argv[1:3]
    skipped, scale = run(program, text, "fp16", torch.float16, 2.0**21, 2e-4)
    assert 0 < skipped < STEPS and scale < 2.0**21
    skipped, scale = run(program, text, "bf16", torch.bfloat16, 65536.0, 2e-3)
    assert skipped == 0 and scale == 65536.0 * 2 ** (STEPS // INTERVAL)


if __name__ == "__main__":
    main()
