"""One rank of another library's all-reduces: the vectors of the program all_reduce, in the same order, without
computing between them.

    python3 -m gloo_bypass_tools.compare_programs.library_rank LIBRARY SETTINGS RESULT

LIBRARY is a name of libraries.py, whose Python runs this; SETTINGS are the program's sizes as JSON. RESULT is a new
file; `{rank}` in it stands for the rank.
"""

import contextlib
import json
import os
import sys
import traceback
from datetime import timedelta

from gloo_bypass_tools.compare_programs import vectors
from gloo_bypass_tools.compare_programs.measuring import Samples, bytes_of, write_record

TIMEOUT_S = 120


class MpiGroup:
    """All ranks that mpirun started, through mpi4py, over numpy's memory."""

    def __init__(self):
        import numpy
        from mpi4py import MPI

        self.numpy, self.all, self.in_place = numpy, MPI.COMM_WORLD, MPI.IN_PLACE
        self.rank, self.size = self.all.Get_rank(), self.all.Get_size()

    def all_reduce(self, vector):
        self.all.Allreduce(self.in_place, vector)

    def barrier(self):
        self.all.Barrier()

    def zeros(self, size):
        return self.numpy.zeros(size // 4, self.numpy.float32)

    def filled(self, size, value):
        return self.numpy.full(size // 4, value, self.numpy.float32)

    def bytes_of(self, vector):
        return vector.tobytes()

    def abort(self):
        """Ends all ranks: one that fails would leave the others in a wait without end."""
        self.all.Abort(1)


class DeepSpeedGroup:
    """DeepSpeed's all-reduce for inference on CPUs, in shared memory; Gloo over TCP for what it does not do itself."""

    def __init__(self):
        import deepspeed.comm
        import torch

        self.torch, self.comm = torch, deepspeed.comm
        torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
        self.comm.init_distributed("gloo", verbose=False, timeout=timedelta(seconds=TIMEOUT_S))
        self.rank, self.size = self.comm.get_rank(), self.comm.get_world_size()
        # Without it DeepSpeed calls Gloo's all-reduce.
        if getattr(self.comm.comm.cdb, "shm_vector_kernel_level", 0) < 1:
            raise RuntimeError("DeepSpeed does not use its operator in shared memory: it needs AVX2")
        self.barrier()
        # All ranks have it open by now. DeepSpeed leaves it there.
        where = f"{os.getuid()}_{os.environ['MASTER_ADDR']}_{os.environ['MASTER_PORT']}_{self.rank}"
        with contextlib.suppress(OSError):
            os.unlink(f"/dev/shm/deepspeed_allreduce_buffer_{where}")

    def all_reduce(self, vector):
        self.comm.inference_all_reduce(vector)

    def barrier(self):
        self.torch.distributed.barrier()

    def zeros(self, size):
        return self.torch.zeros(size // 4)

    def filled(self, size, value):
        return self.torch.full((size // 4,), value)

    def bytes_of(self, vector):
        return bytes_of(vector)

    def abort(self):
        os._exit(1)


GROUPS = {"OpenMPI": MpiGroup, "MPICH": MpiGroup, "DeepSpeed": DeepSpeedGroup}


def run(group, name, settings, path):
    samples = Samples()
    checksum = vectors.measure(group, settings, samples)
    record = {"transport": name, "rank": group.rank, "checksum": checksum, "rows": samples.as_records()}
    write_record(path.replace("{rank}", str(group.rank)), record)
    group.barrier()  # so that the end of a rank which fails now is not the failure of another one


def main():
    name, settings, path = sys.argv[1:]
    group = GROUPS[name]()
    try:
        run(group, name, json.loads(settings), path)
    except Exception:
        traceback.print_exc()
        sys.stderr.flush()
        group.abort()
    if name == "DeepSpeed":
        os._exit(0)  # as rank.py over TCP


if __name__ == "__main__":
    main()
