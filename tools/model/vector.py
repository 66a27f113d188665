"""Options that say what is reduced, shared by subcommands: a model's gradients, a number of parameters, or bytes."""

import argparse

from gloo_bypass_tools.common import argument_types
from gloo_bypass_tools.common.options import add_number
from gloo_bypass_tools.model import buckets

MAX_BYTES = 2**50


def size_of(text):
    """Bytes of a vector."""
    try:
        value = argument_types.size_of(text)
    except argparse.ArgumentTypeError:
        value = 0
    if not 4 <= value <= MAX_BYTES:
        raise argparse.ArgumentTypeError(f"'{text}': it must be a size from 4 to 2^50 bytes, as 4, 64K, 64M or 1G")
    return value


def add_options(parser):
    what = parser.add_mutually_exclusive_group()
    what.add_argument(
        "--model",
        choices=sorted(buckets.MODELS),
        help="its gradients, in the buckets in which DDP reduces them (default distilgpt2: 81,912,576 parameters)",
    )
    add_number(what, "--parameters", float, 1, 1e15, "gradients of so many parameters", metavar="P")
    what.add_argument(
        "--bytes", type=size_of, metavar="S", help="a vector of so many bytes: 64K, 64M, 1G are powers of 1024"
    )
    parser.add_argument("--bits", type=int, choices=(16, 32, 64), default=32, help="of a gradient (default 32)")
    largest = "largest bucket in MiB (default 25 with --model, as DDP's; else all in one)"
    add_number(parser, "--bucket-mb", float, 0.001, 1e6, largest, metavar="MB")
    parser.add_argument(
        "--segment-bytes",
        type=size_of,
        default=2**20,
        metavar="B",
        help="largest segment of Gloo's ring (default 1M, as Gloo's)",
    )


def buckets_of(options):
    """[Bucket] in the order of their all-reduces."""
    element = options.bits // 8
    if options.parameters is None and options.bytes is None:
        model = buckets.MODELS[options.model or "distilgpt2"]
        limit = buckets.BUCKET_BYTES if options.bucket_mb is None else int(options.bucket_mb * buckets.MEBIBYTE)
        return buckets.of_model(model, element, min(buckets.FIRST_BUCKET_BYTES, limit), limit)
    size = options.bytes if options.bytes is not None else int(options.parameters) * element
    size = max(element, size // element * element)
    limit = size if options.bucket_mb is None else int(options.bucket_mb * buckets.MEBIBYTE)
    return buckets.uniform(size, limit, element)


def as_record(options, made):
    """The vector among a record's inputs."""
    return {
        "ranks": options.ranks,
        "what": name_of(options),
        "bits": options.bits,
        "segment_bytes": options.segment_bytes,
        "bucket_bytes": [bucket.size for bucket in made],
    }


def name_of(options):
    if options.bytes is not None:
        return f"{options.bytes:,} bytes"
    if options.parameters is not None:
        return f"{int(options.parameters):,} parameters"
    return options.model or "distilgpt2"
