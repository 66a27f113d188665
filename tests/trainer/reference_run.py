#!/usr/bin/python3
"""Trains the tiny model in plain Python and compares every loss with ddp_train's.

An independent implementation (Hugging Face's formulas on torch.nn.functional, torch's DistributedSampler and AdamW)
must follow the same trajectory: this checks data order, tokens, model, loss and optimiser at once.

usage: reference_run.py DDP_TRAIN SAMPLE_TEXT [FLAG...]
The flags select a way to train that must not change the numbers.
"""

import json
import struct
import subprocess
import sys
import tempfile

try:
    import torch
    import torch.nn.functional as F
    from torch.utils.data import DistributedSampler
except ImportError:
    print("skipped: python3-torch is not installed")
    sys.exit(77)

LAYERS, HIDDEN, HEADS, LENGTH, BATCH, SAMPLES, STEPS, SEED = 2, 32, 4, 16, 4, 40, 6, 42


def read_safetensors(path):
    with open(path, "rb") as file:
        header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
        data = bytearray(file.read())
    header.pop("__metadata__", None)
    return {
        name.removeprefix("transformer."): torch.frombuffer(
            data,
            dtype=torch.float64,
            offset=entry["data_offsets"][0],
            count=(entry["data_offsets"][1] - entry["data_offsets"][0]) // 8,
        )
        .reshape(entry["shape"])
        .clone()
        for name, entry in header.items()
    }


def loss_of(p, ids, targets):
    x = p["wte.weight"][ids] + p["wpe.weight"][: ids.shape[1]]
    mask = torch.ones(ids.shape[1], ids.shape[1], dtype=torch.bool).tril()
    for i in range(LAYERS):

        def w(name):
            return p[f"h.{i}.{name}"]

        y = F.layer_norm(x, (HIDDEN,), w("ln_1.weight"), w("ln_1.bias"))
        q, k, v = (y @ w("attn.c_attn.weight") + w("attn.c_attn.bias")).split(HIDDEN, dim=-1)
        q, k, v = (t.view(*t.shape[:2], HEADS, HIDDEN // HEADS).transpose(1, 2) for t in (q, k, v))
        scores = (q @ k.transpose(-1, -2)) / (HIDDEN // HEADS) ** 0.5
        y = scores.masked_fill(~mask, float("-inf")).softmax(-1) @ v
        y = y.transpose(1, 2).reshape(x.shape)
        x = x + y @ w("attn.c_proj.weight") + w("attn.c_proj.bias")
        y = F.layer_norm(x, (HIDDEN,), w("ln_2.weight"), w("ln_2.bias"))
        y = y @ w("mlp.c_fc.weight") + w("mlp.c_fc.bias")
        y = 0.5 * y * (1 + torch.tanh((2 / torch.pi) ** 0.5 * (y + 0.044715 * y**3)))
        x = x + y @ w("mlp.c_proj.weight") + w("mlp.c_proj.bias")
    x = F.layer_norm(x, (HIDDEN,), p["ln_f.weight"], p["ln_f.bias"])
    return F.cross_entropy((x @ p["wte.weight"].T).flatten(0, 1), targets.flatten())


def byte_ids(data):
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    order = printable + [byte for byte in range(256) if byte not in printable]
    table = {byte: index for index, byte in enumerate(order)}
    return torch.tensor([table[byte] for byte in data])


def samples_of(tokens, sampler, step, batch, steps_per_epoch):
    """A rank's samples in a step, each with the token that follows: (batch, LENGTH + 1)."""
    epoch, position = divmod(step, steps_per_epoch)
    sampler.set_epoch(epoch)
    rows = list(sampler)[position * batch : (position + 1) * batch]
    return torch.stack([tokens[row * LENGTH : row * LENGTH + LENGTH + 1] for row in rows])


def batches(text, steps, batch, ranks):
    """Inputs and targets of each step, of all ranks together."""
    tokens = tokens_of(text)
    samplers = [DistributedSampler(range(SAMPLES), num_replicas=ranks, rank=rank, seed=SEED) for rank in range(ranks)]
    epoch_steps = SAMPLES // (ranks * batch)
    for step in range(steps):
        windows = torch.cat([samples_of(tokens, sampler, step, batch, epoch_steps) for sampler in samplers])
        yield windows[:, :-1], windows[:, 1:]


def tokens_of(text):
    with open(text, "rb") as file:
        return byte_ids(file.read(SAMPLES * LENGTH + 1))


def trainer(program, *flags):
    """What a run of the tiny model prints. A flag may be several words."""
    words = f"--model tiny --precision fp64 --seq-length {LENGTH} --samples {SAMPLES} --seed {SEED}".split()
    words += [word for flag in flags for word in flag.split()]
    return subprocess.run([program, *words], check=True, stdout=subprocess.PIPE, text=True, timeout=100).stdout


def steps_of(program, count, *flags):
    """The records of a run's `count` steps."""
    records = [json.loads(line) for line in trainer(program, f"--steps {count}", *flags).splitlines()]
    steps = [record for record in records if record["event"] == "step"]
    assert len(steps) == count, records
    return steps


def save_initial(program, folder):
    """The path of a file with the weights that a run begins with."""
    path = folder + "/model.safetensors"
    trainer(program, f"--steps 1 --lr 0 --batch-size 1 --save-model {path}")
    return path


def adamw(weights, rate=3e-4):
    """Parameters with these values, and the trainer's optimiser of them."""
    parameters = {name: value.clone().requires_grad_(True) for name, value in weights.items()}
    return parameters, torch.optim.AdamW(parameters.values(), lr=rate, weight_decay=0.01)


def main():
    program, text, *flags = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        path = save_initial(program, folder)
        steps = steps_of(program, STEPS, f"--spawn 2 --batch-size {BATCH} --weights {path}", *flags)
        parameters, optimizer = adamw(read_safetensors(path))
    losses = [record["loss_mean"] for record in steps]
    for step, (loss, (ids, targets)) in enumerate(zip(losses, batches(text, STEPS, BATCH, 2))):
        expected = loss_of(parameters, ids, targets)
        print(f"step {step + 1}: {loss:.12f}, reference {expected.item():.12f}")
        assert abs(loss - expected.item()) < 1e-9, f"step {step + 1} differs by {loss - expected.item()}"
        optimizer.zero_grad()
        expected.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
