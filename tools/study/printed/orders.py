"""In which order the algorithms of an all-reduce add, as pure functions of the ranks' vectors.

Each takes a list of vectors, one a rank, and `add`, which combines two partial sums element by element; it returns the
sums. Floating-point addition commutes, so only the grouping matters. ring, bcube, halving_doubling and ring_chunked are
Gloo's (gloo/allreduce.cc, allreduce_halving_doubling.h, allreduce_ring_chunked.h); tree is a binomial tree to rank 0
(Thakur, Rabenseifner, Gropp: "Optimization of Collective Communication Operations in MPICH", 2005), flat is every rank
sending to rank 0, which adds in the order of ranks.
"""

import functools

GLOO_SEGMENT_BYTES = 1 << 20  # Gloo's default, and c10d's


def pieces(length, piece, owners):
    """(owner, slice) of each consecutive piece; the last ones may be short or empty."""
    for owner in range(owners):
        begin = min(owner * piece, length)
        yield owner, slice(begin, min(begin + piece, length))


def join(vectors, parts):
    """One vector of the parts, of the kind that the vectors are (see arithmetic.py)."""
    return vectors[0].joined([part for part in parts if len(part)])


def flat(vectors, add):
    return functools.reduce(add, vectors)


def tree(vectors, add):
    """At distance 1, 2, 4, ... every second rank that is left sends to the one before it."""
    left = list(vectors)
    while len(left) > 1:
        left = [functools.reduce(add, left[i : i + 2]) for i in range(0, len(left), 2)]
    return left[0]


def ring_chunk(length, ranks, item_bytes, segment_bytes):
    """Elements of a rank's chunk: at least two segments a rank, segments of the same number of elements."""
    total = length * item_bytes
    largest = item_bytes * max(1, segment_bytes // item_bytes)
    segments = -(-max(-(-total // largest), 2 * ranks) // ranks) * ranks
    segment = -(-(-(-total // segments)) // item_bytes)
    return segments // ranks * segment


def ring(vectors, add, segment_bytes=GLOO_SEGMENT_BYTES):
    """The chunk of rank c starts at the rank before c, goes down from rank to rank, and is complete at c."""
    ranks = len(vectors)
    piece = ring_chunk(len(vectors[0]), ranks, vectors[0].wire_bytes, segment_bytes)
    return join(
        vectors,
        [
            functools.reduce(add, [vectors[(owner - 1 - i) % ranks][part] for i in range(ranks)])
            for owner, part in pieces(len(vectors[0]), piece, ranks)
        ],
    )


def ring_chunked(vectors, add):
    """Two chunks a rank, of at least 256 elements. Those of rank c start there, go up, and are complete at the rank
    before."""
    ranks, length = len(vectors), len(vectors[0])
    piece = 2 * max(256, -(-length // (2 * ranks)))
    parts = []
    for owner, part in pieces(length, piece, ranks):
        parts.append(functools.reduce(add, [vectors[(owner + i) % ranks][part] for i in range(ranks)]))
    return join(vectors, parts)


def power_of_two_tree(vectors, add):
    """Recursive halving: at every step each half of a range is added to the partner's, so every element is a balanced
    tree of the ranks."""
    while len(vectors) > 1:
        vectors = [add(vectors[i], vectors[i + 1]) for i in range(0, len(vectors), 2)]
    return vectors[0]


def halving_doubling(vectors, add):
    """Blocks of ranks, a power of two each, the largest one first. Each block reduces by itself; the smallest one's sum
    is added to the next larger one's, and so on."""
    sums, first, ranks = [], 0, len(vectors)
    for bit in reversed(range(ranks.bit_length())):
        if ranks & (1 << bit):
            sums.append(power_of_two_tree(vectors[first : first + (1 << bit)], add))
            first += 1 << bit
    return functools.reduce(lambda smaller, larger: add(larger, smaller), reversed(sums))


def bcube_groups(ranks):
    """Sizes of the groups of each step: 2 as long as the number of ranks can be halved, then what is left."""
    sizes = []
    while ranks % 2 == 0:
        sizes.append(2)
        ranks //= 2
    return sizes + ([ranks] if ranks > 1 else [])


def bcube(vectors, add):
    """At each step the ranks of a group share a range: each owns a piece, to which it adds the others' in their order,
    its own first."""

    def reduce_range(sums, begin, end, sizes):
        """The finished pieces of begin..end, in order. sums: of the ranks that still hold this range, by rank."""
        if not sizes:
            return [(begin, sums[0][begin:end])]
        size = sizes[0]
        piece = -(-(end - begin) // size)
        finished = []
        for owner in range(size):
            first = min(begin + owner * piece, end)
            last = min(first + piece, end)
            # Groups are neighbours: at the next step one rank of each group goes on with this piece.
            owned = []
            for group in range(0, len(sums), size):
                members = sums[group : group + size]
                order = [owner] + [other for other in range(size) if other != owner]
                owned.append(functools.reduce(add, [members[i] for i in order]))
            finished += reduce_range(owned, first, last, sizes[1:])
        return finished

    parts = reduce_range(list(vectors), 0, len(vectors[0]), bcube_groups(len(vectors)))
    return join(vectors, [part for _, part in sorted(parts, key=lambda one: one[0]) if len(part)])


ALGORITHMS = {
    "flat": flat,
    "ring": ring,
    "ring_chunked": ring_chunked,
    "tree": tree,
    "halving_doubling": halving_doubling,
    "bcube": bcube,
}


def additions_in_a_row(name, ranks):
    """The longest chain of additions that an operand goes through, by which the error is bounded."""
    if name in ("flat", "ring", "ring_chunked"):
        return ranks - 1
    if name == "tree":
        return (ranks - 1).bit_length()
    if name == "bcube":
        return sum(size - 1 for size in bcube_groups(ranks))
    blocks = [bit for bit in range(ranks.bit_length()) if ranks & (1 << bit)]
    chain = blocks[0]
    for bit in blocks[1:]:
        chain = max(chain, bit) + 1
    return chain
