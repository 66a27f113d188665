"""Options that say what is reduced, shared by subcommands: a model's gradients, a number of parameters, or bytes."""

import argparse
import re

from gloo_bypass_tools.common.argument_types import number_in
from gloo_bypass_tools.model import buckets

SUFFIXES = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30}
MAX_BYTES = 2**50


def size_of(text):
    """Bytes of '4', '64K', '64M': powers of 1024, as all_reduce_perf reads them."""
    found = re.fullmatch(r"(\d{1,16})([KMG]?)", text.strip().upper())
    value = int(found.group(1)) * SUFFIXES[found.group(2)] if found else 0
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
    what.add_argument(
        "--parameters", type=number_in(float, 1, 1e15), metavar="P", help="gradients of so many parameters"
    )
    what.add_argument(
        "--bytes", type=size_of, metavar="S", help="a vector of so many bytes: 64K, 64M, 1G are powers of 1024"
    )
    parser.add_argument("--bits", type=int, choices=(16, 32, 64), default=32, help="of a gradient (default 32)")
    parser.add_argument(
        "--bucket-mb",
        type=number_in(float, 0.001, 1e6),
        metavar="MB",
        help="largest bucket in MiB (default 25 with --model, as DDP's; else all in one)",
    )
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
    return buckets.uniform(
        size, size if options.bucket_mb is None else int(options.bucket_mb * buckets.MEBIBYTE), element
    )


def name_of(options):
    if options.bytes is not None:
        return f"{options.bytes:,} bytes"
    if options.parameters is not None:
        return f"{int(options.parameters):,} parameters"
    return options.model or "distilgpt2"
