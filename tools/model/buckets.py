"""The buckets in which DDP reduces a model's gradients, and when each is ready. Pure.

As c10d::compute_bucket_assignment_by_size does once DDP has seen the order in which gradients become ready (from the
second step on): parameters in that order, a bucket closed when it has reached its limit; the first bucket's limit is
smaller.
"""

from dataclasses import dataclass

MEBIBYTE = 2**20
FIRST_BUCKET_BYTES, BUCKET_BYTES = MEBIBYTE, 25 * MEBIBYTE


@dataclass(frozen=True)
class Bucket:
    """`ready`: from 0 (the first bucket of the step) to 1 (the last), the share of the computation between them."""

    size: int
    ready: float


@dataclass(frozen=True)
class Gpt2:
    layers: int
    hidden: int
    vocabulary: int = 50257
    positions: int = 1024

    def parameters(self):
        """Parameter counts in the order of registration; the output projection is tied to the token embedding."""
        c = self.hidden
        block = [c, c, 3 * c * c, 3 * c, c * c, c, c, c, 4 * c * c, 4 * c, 4 * c * c, c]
        return [self.vocabulary * c, self.positions * c, *block * self.layers, c, c]

    def parameter_count(self):
        return sum(self.parameters())

    def ready_order(self):
        """(parameters, multiplications a token so far) in the order in which backward finishes the gradients.

        The output projection comes first in backward, but its gradient is ready last: the embedding shares it.
        """
        done = self.vocabulary * self.hidden
        order = []
        embeddings = 2
        for count in reversed(self.parameters()[embeddings:]):
            done += count if count > 4 * self.hidden else 0
            order.append((count, done))
        return order + [(self.positions * self.hidden, done), (self.vocabulary * self.hidden, done)]


# Of `tiny` as ddp_train has it.
MODELS = {
    "distilgpt2": Gpt2(6, 768),
    "gpt2": Gpt2(12, 768),
    "gpt2-medium": Gpt2(24, 1024),
    "gpt2-large": Gpt2(36, 1280),
    "gpt2-xl": Gpt2(48, 1600),
    "tiny": Gpt2(2, 32, vocabulary=512, positions=128),
}


def of_model(model, element_bytes, first=FIRST_BUCKET_BYTES, limit=BUCKET_BYTES):
    """The buckets in the order of their all-reduces."""
    made, size, done = [], 0, 0
    for count, computed in model.ready_order():
        size, done = size + count * element_bytes, computed
        if size >= (limit if made else first):
            made.append((size, done))
            size = 0
    if size:
        made.append((size, done))
    start, end = made[0][1], made[-1][1]
    return [Bucket(size, (done - start) / (end - start) if end > start else 0.0) for size, done in made]


def first_ready(model):
    """The share of backward that is over when the first gradient of a block is ready (the output projection's)."""
    order = model.ready_order()
    return model.vocabulary * model.hidden / order[-1][1]


def uniform(size, limit, element_bytes):
    """A vector without known layers in equal buckets of at most `limit` bytes, ready evenly over backward."""
    number = max(1, -(-size // limit))
    elements = size // element_bytes
    edges = [elements * index // number * element_bytes for index in range(number)] + [size]
    return [Bucket(edges[index + 1] - edges[index], index / max(1, number - 1)) for index in range(number)]
