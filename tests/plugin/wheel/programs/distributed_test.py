"""Runs PyTorch's DistributedTest, as the wheel of PyTorch has it, and prints one line a case: its name, the outcome and
the reason. The program says "gloo"; GLOO_BYPASS_COLLECTIVES=own makes that ours.

    distributed_test.py RANKS LIMIT_S [PART OF A CASE'S NAME]...

Ranks are forked: PyTorch's own runner spawns them, and each would import PyTorch again.
"""

import logging
import os
import sys
import tempfile
import time
import unittest

CASE_LIMIT_S = 40
# PyTorch runs these over MPI only, for its Gloo lacks what they call. Ours has it.
NOT_ONLY_MPIS = ("Only MPI supports CPU all_to_all_single", "Only MPI supports all_to_all")


def prepare(ranks):
    folder = tempfile.mkdtemp()
    open(os.path.join(folder, "barrier"), "w").close()
    os.environ.update(BACKEND="gloo", WORLD_SIZE=str(ranks), TEMP_DIR=folder, OMP_NUM_THREADS="1")


def run_mpis_cases_too(common_utils):
    skip = common_utils.skip_but_pass_in_sandcastle_if

    def skip_if(condition, reason):
        return skip(condition and reason not in NOT_ONLY_MPIS, reason)

    common_utils.skip_but_pass_in_sandcastle_if = skip_if


def check_that_groups_are_ours(dist):
    """So that the suite cannot silently run over Gloo."""
    make = dist.init_process_group

    def init_process_group(*arguments, **more):
        make(*arguments, **more)
        kind = type(dist.group.WORLD)
        if kind.__module__ != "gloo_bypass._process_group":
            raise AssertionError(f"the program's groups are not ours: {kind.__module__}.{kind.__name__}")

    dist.init_process_group = init_process_group


def cases():
    import torch.distributed
    from torch.testing._internal import common_distributed, common_utils

    if os.environ.get("GLOO_BYPASS_COLLECTIVES") == "own":
        run_mpis_cases_too(common_utils)
        check_that_groups_are_ours(torch.distributed)
    common_distributed.get_timeout = lambda name: CASE_LIMIT_S
    from torch.testing._internal.distributed.distributed_test import DistributedTest, TestDistBackend

    class Cases(TestDistBackend, DistributedTest._DistTestBase):
        def setUp(self):
            super().setUp()
            import torch.multiprocessing

            self._start_processes(torch.multiprocessing.get_context("fork").Process)

    return Cases


def outcome_of(case):
    result = unittest.TestResult()
    case.run(result)
    if result.skipped:
        return "skipped", result.skipped[0][1]
    failures = result.failures + result.errors
    if not failures:
        return "passed", ""
    return "failed", failures[0][1].strip()


def main():
    ranks, limit_s, parts = int(sys.argv[1]), float(sys.argv[2]), sys.argv[3:]
    end = time.monotonic() + limit_s
    prepare(ranks)
    import torch

    torch.set_num_threads(1)
    logging.disable(logging.INFO)
    kind = cases()
    names = unittest.TestLoader().getTestCaseNames(kind)
    for name in names:
        if parts and not any(part in name for part in parts):
            continue
        if time.monotonic() > end:
            print(f"case {name} unfinished no time was left after {limit_s:.0f} s", flush=True)
            continue
        outcome, reason = outcome_of(kind(name))
        print(f"case {name} {outcome} " + " | ".join(reason.splitlines()), flush=True)


if __name__ == "__main__":
    main()
