#!/usr/bin/python3
"""Trains the tiny model in Python with each gradient compression and compares every loss with ddp_train's.

Two Python ranks under DistributedDataParallel: fp16, bf16 and PowerSGD by PyTorch's own communication hooks, the others
by hooks written here from the papers. In fp64, so that only rounding in the last bits may differ.

usage: PYTHONPATH=tests/trainer compression_reference.py DDP_TRAIN SAMPLE_TEXT
"""

import json
import os
import subprocess
import sys
import tempfile

import reference_run as reference  # exits with 77 where torch is missing
import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DistributedSampler

RANKS, STEPS, BATCH, SEED, WARMUP = 2, 8, 4, 42, 3
RATIO, RANDOM_RATIO, LEVELS, RANK, GROUP = 0.05, 0.3, 3, 3, 512
TOLERANCE = 1e-9
METHODS = {
    "none": "",
    "fp16": "",
    "bf16": "",
    "topk": f"--compress-ratio {RATIO}",
    "topk-forgetful": f"--compress-ratio {RATIO} --no-error-feedback",
    "randomk": f"--compress-ratio {RANDOM_RATIO}",
    "randomk-forgetful": f"--compress-ratio {RANDOM_RATIO} --no-error-feedback",
    "sign": "",
    "terngrad": "",
    "qsgd": f"--compress-levels {LEVELS}",
    "powersgd": f"--compress-rank {RANK} --compress-warmup {WARMUP}",
}

MASK, GOLDEN = 2**64 - 1, 0x9E3779B97F4A7C15


def mixed(z):
    """SplitMix64's finaliser."""
    z = (z + GOLDEN) & MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)


def seed_at(step, rank, parameter):
    """The trainer's for a place: rank -1 is the same on all ranks."""
    return mixed(mixed(mixed(mixed(SEED) ^ step) ^ (rank + 1)) ^ parameter) >> 1


def generator_at(step, rank, parameter):
    return torch.Generator().manual_seed(seed_at(step, rank, parameter))


def uniform(generator, count):
    return torch.rand(count, generator=generator, dtype=torch.float64)


def short_uniform(place, count):
    """16 bits of SplitMix64 an element."""
    state = seed_at(*place)
    words = [mixed((state + i * GOLDEN) & MASK) for i in range((count + 3) // 4)]
    draws = torch.tensor([word >> shift & 0xFFFF for word in words for shift in (0, 16, 32, 48)], dtype=torch.float64)
    return (draws[:count] + 0.5) / 65536


def top_k(p, _place):
    kept = max(1, int(p.numel() * RATIO))
    chosen = p.abs().topk(kept).indices
    return torch.zeros_like(p).index_copy_(0, chosen, p[chosen])


def scaled_sign(p, _place):
    return p.abs().mean() * torch.where(p >= 0, 1.0, -1.0).double()


def tern_grad(p, place):
    scale = p.abs().max()
    chance = p.abs() / scale if scale > 0 else torch.zeros_like(p)
    return scale * p.sign() * (chance + short_uniform(place, p.numel())).floor()


def qsgd(p, place):
    chance = short_uniform(place, p.numel())
    parts = []
    for v, u in zip(p.split(GROUP), chance.split(GROUP)):
        norm = v.norm()
        position = v.abs() / norm * LEVELS if norm > 0 else torch.zeros_like(v)
        parts.append(norm * v.sign() * (position + u).floor() / LEVELS)
    return torch.cat(parts)


def random_subset(count, generator):
    """One of each of as many runs of neighbours as are kept; and the runs' lengths."""
    kept = max(1, int(count * RANDOM_RATIO))
    ends = torch.tensor([(i + 1) * count // kept for i in range(kept)])
    lengths = torch.diff(ends, prepend=torch.zeros(1, dtype=torch.long))
    return ends - lengths + (uniform(generator, kept) * lengths).long(), lengths


class Compression:
    """State that one rank's own hooks share: the step, the parameters' numbers, residuals."""

    def __init__(self, method, parameters):
        self.method = method
        self.step = 0
        self.numbers = {id(parameter): number for number, parameter in enumerate(parameters)}
        self.residuals = {}

    def __call__(self, _state, bucket):
        for parameter, gradient in zip(bucket.parameters(), bucket.gradients()):
            number = self.numbers[id(parameter)]
            gradient.copy_(self.mean(gradient.reshape(-1).clone(), number).view_as(gradient))
        self.step += 1 if bucket.is_last() else 0
        done = torch.futures.Future()
        done.set_result(bucket.buffer())
        return done

    def mean(self, gradient, number):
        p = gradient + self.residuals.get(number, 0)
        if self.method.startswith("randomk"):
            chosen, lengths = random_subset(p.numel(), generator_at(self.step, -1, number))
            values = p[chosen] if self.method == "randomk" else p[chosen] * lengths
            result = torch.zeros_like(p).index_copy_(0, chosen, values)
        else:
            compress = {
                "topk": top_k,
                "topk-forgetful": top_k,
                "sign": scaled_sign,
                "terngrad": tern_grad,
                "qsgd": qsgd,
            }[self.method]
            result = compress(p, (self.step, dist.get_rank(), number))
        if self.method in ("topk", "sign", "randomk"):
            self.residuals[number] = p - result
        dist.all_reduce(result)
        return result / RANKS


def bf16_sum(tensor, group=None, async_op=True):
    """dist.all_reduce for bfloat16, which Gloo does not know in all releases: gathered as bytes, added by rank."""
    gathered = [torch.empty_like(tensor).view(torch.uint8) for _ in range(RANKS)]
    dist.all_gather(gathered, tensor.view(torch.uint8), group=group)
    tensor.copy_(sum(part.view(torch.bfloat16) for part in gathered[1:]) + gathered[0].view(torch.bfloat16))

    class Work:
        def get_future(self):
            done = torch.futures.Future()
            done.set_result([tensor])
            return done

    return Work()


class OurAllReduce:
    """Looks like torch.distributed to default_hooks."""

    group, all_reduce = dist.group, staticmethod(bf16_sum)


def bf16_hook(state, bucket):
    real, default_hooks.dist = default_hooks.dist, OurAllReduce
    try:
        return default_hooks.bf16_compress_hook(state, bucket)
    finally:
        default_hooks.dist = real


class PowerSgd:
    """PyTorch's hook, its first Q the trainer's: torch.randn under the seed of the parameter."""

    def __init__(self, parameters):
        self.numbers = {id(parameter): number for number, parameter in enumerate(parameters)}
        self.state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=RANK, start_powerSGD_iter=WARMUP)

    def __call__(self, _state, bucket):
        state = self.state
        if state.iter == WARMUP and bucket.index() not in state.q_memory_dict:
            qs, p_size = {}, 0
            for parameter in bucket.parameters():
                rows, columns = parameter.shape[0], parameter.numel() // parameter.shape[0]
                rank = min(rows, columns, RANK)
                if not powerSGD_hook._should_compress(rows, columns, rank, state.min_compression_rate)[0]:
                    continue
                generator = generator_at(0, -1, self.numbers[id(parameter)])
                q = torch.randn(columns, rank, generator=generator, dtype=parameter.dtype)
                qs.setdefault((rows, columns), []).append(q.view(-1))  # the hook sorts them by shape
                p_size += rows * rank
            assert qs, "nothing to compress"
            state.q_memory_dict[bucket.index()] = torch.cat([q for same in qs.values() for q in same])
            state.p_memory_dict[bucket.index()] = torch.empty(p_size, dtype=torch.float64)
        return powerSGD_hook.powerSGD_hook(state, bucket)


class Model(torch.nn.Module):
    def __init__(self, weights):
        super().__init__()
        self.names = list(weights)
        self.values = torch.nn.ParameterList(torch.nn.Parameter(weights[name].clone()) for name in self.names)

    def forward(self, ids, targets):
        return reference.loss_of(dict(zip(self.names, self.values)), ids, targets)


def order_in_model(weights):
    """As the trainer numbers parameters: Hugging Face's order of registration."""
    block = [
        f"{part}.{kind}"
        for part in ("ln_1", "attn.c_attn", "attn.c_proj", "ln_2", "mlp.c_fc", "mlp.c_proj")
        for kind in ("weight", "bias")
    ]
    names = ["wte.weight", "wpe.weight"]
    names += [f"h.{layer}.{name}" for layer in range(reference.LAYERS) for name in block]
    names += ["ln_f.weight", "ln_f.bias"]
    assert sorted(names) == sorted(weights), sorted(weights)
    return {name: weights[name] for name in names}


def losses_of(method, weights, tokens):
    rank = dist.get_rank()
    module = Model(weights)
    model = DistributedDataParallel(module)
    parameters = list(module.values)
    hook = {"none": None, "fp16": default_hooks.fp16_compress_hook, "bf16": bf16_hook}.get(method, method)
    if method == "powersgd":
        hook = PowerSgd(parameters)
    elif isinstance(hook, str):
        hook = Compression(method, parameters)
    if hook is not None:
        # c10d checks the hook's annotations: a function without any
        model.register_comm_hook(None, lambda state, bucket: hook(state, bucket))
    optimizer = torch.optim.AdamW(parameters, lr=3e-4, weight_decay=0.01)
    sampler = DistributedSampler(range(reference.SAMPLES), num_replicas=RANKS, rank=rank, seed=SEED)
    losses = []
    for step in range(STEPS):
        windows = reference.samples_of(tokens, sampler, step, BATCH, reference.SAMPLES // (RANKS * BATCH))
        loss = model(windows[:, :-1], windows[:, 1:])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        mean = loss.detach().clone()
        dist.all_reduce(mean)
        losses.append(mean.item() / RANKS)
    return losses


def run_rank(rank, folder, text):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=RANKS)
    tokens = reference.tokens_of(text)
    weights = order_in_model(reference.read_safetensors(folder + "/model.safetensors"))
    losses = {method: losses_of(method, weights, tokens) for method in METHODS}
    if rank == 0:
        with open(folder + "/losses.json", "w") as file:
            json.dump(losses, file)
    dist.barrier()


def main():
    program, text = sys.argv[1:3]
    with tempfile.TemporaryDirectory() as folder:
        path = reference.save_initial(program, folder)
        ranks = [
            subprocess.Popen([sys.executable, os.path.abspath(__file__), "--rank", str(rank), folder, text])
            for rank in range(RANKS)
        ]
        trained = {}
        for method, flags in METHODS.items():
            common = f"--spawn {RANKS} --batch-size {BATCH} --weights {path} --verify-ranks"
            steps = reference.steps_of(program, STEPS, common, f"--compress {method.split('-')[0]}", flags)
            trained[method] = [record["loss_mean"] for record in steps]
        assert [rank.wait(timeout=100) for rank in ranks] == [0] * RANKS
        with open(folder + "/losses.json") as file:
            expected = json.load(file)
    failed = []
    for method in METHODS:
        difference = max(abs(a - b) for a, b in zip(trained[method], expected[method]))
        effect = max(abs(a - b) for a, b in zip(trained[method], trained["none"]))
        print(
            f"{method}: last loss {trained[method][-1]:.12f}, largest difference from the reference "
            f"{difference:.1e}, from no compression {effect:.1e}"
        )
        assert len(trained[method]) == len(expected[method]) == STEPS
        if difference > TOLERANCE or (method != "none" and effect < 10 * TOLERANCE):
            failed.append(method)
    assert not failed, f"differ from the reference, or not from no compression: {failed}"


if __name__ == "__main__":
    if sys.argv[1] == "--rank":
        run_rank(int(sys.argv[2]), *sys.argv[3:5])
    else:
        main()
