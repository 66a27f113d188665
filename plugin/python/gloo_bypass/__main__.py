"""`python3 -m gloo_bypass`: which transports work here, and what the others lack."""
import argparse
import dataclasses
import json
import os
import sys
from typing import Optional, Sequence

import torch

from . import BUILT_FOR_TORCH, __version__, available, library
from ._library import gloo


def main(arguments: Optional[Sequence[str]] = None) -> int:
    parser = argparse.ArgumentParser(prog="python3 -m gloo_bypass",
                                     description="Says which transports work here, and what the others lack.",
                                     epilog="Exit status 1 if a transport that was named does not work; else 0.")
    parser.add_argument("transports", metavar="TRANSPORT", nargs="*",
                        help="those that have to work, by their names in GLOO_DEVICE_TRANSPORT")
    parser.add_argument("--json", action="store_true", help="one JSON object")
    parser.add_argument("--version", action="version",
                        version=f"gloo_bypass {__version__}, built for PyTorch {BUILT_FOR_TORCH}")
    options = parser.parse_args(arguments)
    answers = available()
    for name in options.transports:
        if name not in answers:
            parser.error(f"'{name}' is no transport; there are {', '.join(answers)}")
    if options.json:
        print(json.dumps({name: dataclasses.asdict(answer) for name, answer in answers.items()}))
    else:
        print(f"gloo_bypass {__version__} with PyTorch {torch.__version__}: Gloo {gloo}, {os.path.basename(library)}")
        for answer in answers.values():
            print(answer)
    return 0 if all(answers[name] for name in options.transports) else 1


if __name__ == "__main__":
    sys.exit(main())
