"""Stored runs as scripts/compare-programs writes them."""

from gloo_bypass_tools.report import programs, stored_programs


def row_record(program, quantity, transport, us, size=0, compute_ms=0, rounds=None):
    rounds = rounds or [us]
    return {
        "program": program,
        "quantity": quantity,
        "bytes": size,
        "compute_ms": compute_ms,
        "transport": transport,
        "median_us": us,
        "p99_us": us + abs(us),
        "mean_us": us,
        "samples": 100,
        "rounds_us": rounds,
    }


def run_record(tcp_us=1000.0, dpdk_us=250.0, cores=2, alone_us=(500.0, 500.0), rate=17.0):
    rows = []
    for transport, us, alone in (("TCP", tcp_us, alone_us[0]), ("DPDK", dpdk_us, alone_us[1])):
        rows += [
            row_record("training", programs.STEP_ALONE, transport, 1000 * alone),
            row_record("training", programs.STEP, transport, 1000 * (alone + us)),
            row_record("training", programs.EXPOSED, transport, 1000 * us),
            row_record("training", programs.STEP_UNSENT, transport, 1000 * (alone + 50)),
            row_record("training", programs.COPIES, transport, 1000 * 50),
            row_record("decoding", programs.TOKEN, transport, 50 * us, rounds=[49 * us, 50 * us, 60 * us]),
            row_record("all_reduce", programs.HOT, transport, us, 8192),
            row_record("all_reduce", programs.ROUND, transport, 3 * us, 8192, 2),
            row_record("all_reduce", programs.ADDED, transport, 2 * us, 8192, 2),
        ]
    return {
        "schema": stored_programs.SCHEMA,
        "commit": "0123abc4567d",
        "date": "2026-11-27",
        "machine": {
            "processor": "a processor",
            "cores": cores,
            "memory_gib": 8.0,
            "operating_system": "Debian",
            "kernel": "6.1",
        },
        "load_before": 0.1,
        "others_cores": 0.02,
        "rates": [{"copy_GBps": {"1": rate, "2": rate}, "add_GBps": {"1": 9.0, "2": 9.0}}],
        "python": "3.11.2",
        "torch": "2.13.0+cpu",
        "gloo_bypass": "0.1.0",
        "ranks": 2,
        "threads": 1,
        "rounds": 3,
        "effort": "full",
        "transports": ["TCP", "DPDK"],
        "left_out": [{"what": "something", "why": "a reason"}],
        "digests": {"decoding": "abc"},
        "rows": rows,
    }
