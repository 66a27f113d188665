"""torch.distributed's backend "bypass": what it does beyond Gloo, and how it fails. Ranks are processes on this
machine."""

import pathlib
import subprocess
import sys

import pytest
from conftest import PACKAGE_PATH, PROGRAMS, environment_for, run
from ranks import FROM_WHEEL, HANG_SECONDS, PYTHON, Ranks, clean_environment

LEAST_TORCH = (2, 6)


LOADED = {"PYTHONPATH": PACKAGE_PATH}


def ranks_of(program, size, *arguments, **environment):
    environment = LOADED | environment
    load = "wheel" if FROM_WHEEL else "import"
    return Ranks(PROGRAMS / program, size, transport=None, load=load, arguments=arguments, environment=environment)


@pytest.fixture(scope="module")
def new_enough(installed_torch):
    if installed_torch < LEAST_TORCH:
        pytest.skip(f"the backend needs PyTorch 2.6 or later, this is {'.'.join(map(str, installed_torch))}")


@pytest.mark.parametrize(
    "case, size",
    [
        ("beyond_gloo", 3),
        ("wrong_arguments", 2),
        ("names", 3),
        ("names", 4),
        ("transport_is_required", 2),
        ("transports_are_named", 2),
        ("alone_and_destroyed", 1),
        ("default_device_is_another", 2),
        ("in_flight_works_are_known", 2),
        ("quantized", 2),
        ("monitored_barriers_leave_little", 3),
        ("monitored_barrier_reads_a_hostile_store", 2),
        ("gloo_has_the_host", 2),
        ("pytorchs_own_names", 2),
        ("pytorchs_own_names", 3),
        ("other_devices", 2),
        ("time_passes", 2),
        ("message_does_not_come", 2),
        ("results_are_there_without_a_wait", 2),
        ("dropped_works_end", 2),
        ("leaves_what_others_need", 2),
        ("first_message_while_others_are_in_a_barrier", 2),
        ("first_message_while_others_are_in_a_barrier", 3),
        ("first_message_while_the_program_waits_in_its_store", 2),
        ("ctrl_c_in_a_monitored_barrier", 2),
        ("coalesced", 2),
        ("barrier_without_a_rank", 3),
        ("barrier_rank_0_comes_late", 3),
        ("receive_that_nobody_sends", 3),
        ("short_overloads", 2),
        ("pieces_of_different_operations", 2),
        ("negated_view", 2),
        ("short_way", 2),
        ("not_the_short_way", 2),
        ("short_way_has_its_own_timeout", 2),
        ("tensor_leaves_the_callers_list", 2),
        ("interrupted_work_holds_nothing", 2),
        ("awaited_works_wake_nobody", 2),
        ("destroyed_while_an_exception_is_handled", 2),
        ("forked_rank_leaves_a_send", 2),
        ("forked_rank_within_a_handler_leaves_a_send", 2),
        ("forked_rank_has_a_pool", 2),
        ("spawned_rank_leaves_a_send", 2),
        ("forked_rank_sums_in_a_thread", 2),
        ("ctrl_c_while_the_group_is_made", 2),
        ("store_after_ctrl_c", 2),
        ("question_outlives_who_asked", 1),
        ("asynchronous_failure", 2),
        ("forked", 2),
        ("described_after_its_end", 2),
        ("tensors_live_until_the_end", 2),
        ("works_do_not_stay", 2),
        ("callbacks_may_wait", 2),
        ("ends_without_destroying", 3),
        ("ends_with_work_under_way", 2),
        ("many_groups", 2),
    ],
)
def test_Group_OfThisCase_BehavesAsItSays(new_enough, installed_torch, case, size):
    if case == "first_message_while_the_program_waits_in_its_store" and installed_torch < (2, 9):
        pytest.skip("stores of PyTorch before 2.9 have one connection")
    if "short_way" in case and installed_torch < (2, 8):
        pytest.skip("options of PyTorch before 2.8 do not say whether a call waits")
    if case == "in_flight_works_are_known" and installed_torch < (2, 7):
        pytest.skip("PyTorch before 2.7 cannot be told of works in flight")
    with ranks_of("door_behaviour.py", size, case) as ranks:
        ranks.succeed()
        assert [ranks.value(rank, "end") for rank in range(size)] == ["ok"] * size


def test_Exit_HandlerUsesAGroup_ItIsThereYet(new_enough):
    with ranks_of("door_behaviour.py", 2, "ends_and_uses_groups_at_exit") as ranks:
        ranks.succeed()
        assert [ranks.value(rank, "left") for rank in range(2)] == ["ok", "ok"]


def test_Ranks_CallDifferently_ErrorNamesBothCalls(new_enough):
    with ranks_of("door_behaviour.py", 2, "ranks_disagree") as ranks:
        ranks.succeed()
        for rank in range(2):
            error = ranks.value(rank, "error")
            assert "8 float32" in error and "9 float32" in error and "rank" in error, error


def test_Rank_IsKilled_OthersFailAndNameIt(new_enough):
    with ranks_of("door_behaviour.py", 3, "a_rank_dies") as ranks:
        for rank in range(3):
            ranks.wait_for_line(rank, "ready")
        ranks.signal(2, 9)
        assert ranks.wait([0, 1]) == [0, 0], ranks.output(0) + ranks.output(1)
        for rank in range(2):
            assert "rank 2" in ranks.value(rank, "error")


def test_Abort_InAnotherThread_EndsTheWait(new_enough):
    with ranks_of("door_behaviour.py", 2, "abort") as ranks:
        ranks.succeed()
        assert "abort" in ranks.value(0, "error")


def test_Setting_CollectivesAreOwn_GlooGroupsAreOursAndRank0SaysSo(new_enough):
    with ranks_of("door_behaviour.py", 2, "gloo_is_ours", GLOO_BYPASS_COLLECTIVES="own") as ranks:
        ranks.succeed()
        line = "gloo-bypass: GLOO_BYPASS_COLLECTIVES=own: this program's Gloo groups use our collectives"
        assert [ranks.output(rank).count(line) for rank in range(2)] == [1, 0]


@pytest.mark.parametrize("value", [None, "gloo"])
def test_Setting_CollectivesAreGloos_GroupsAreGloos(new_enough, value):
    environment = {} if value is None else {"GLOO_BYPASS_COLLECTIVES": value}
    with ranks_of("door_behaviour.py", 2, "gloo_is_gloos", **environment) as ranks:
        ranks.succeed()


def test_Setting_CollectivesAreNeither_GroupSaysWhatIsAllowed(new_enough):
    with ranks_of("door_behaviour.py", 2, "gloo_is_gloos", GLOO_BYPASS_COLLECTIVES="Own") as ranks:
        ranks.wait()
        for rank in range(2):
            assert "GLOO_BYPASS_COLLECTIVES='Own' is not allowed: it must be gloo or own" in ranks.output(rank)


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("transport", ["DPDK", "UDP"])
def test_Calls_SeveralStartedTogether_EachGivesItsOwnSum(new_enough, transport, size):
    arguments = ("bypass", 40, "4,8192,300000", 3)
    with ranks_of("several_at_once.py", size, *arguments, GLOO_DEVICE_TRANSPORT=transport) as ranks:
        ranks.succeed()
        assert [ranks.value(rank, "right") for rank in range(size)] == ["40"] * size


@pytest.mark.parametrize("transport", ["DPDK", "UDP"])
def test_Wait_CtrlC_RaisesKeyboardInterrupt(new_enough, transport):
    with ranks_of("door_behaviour.py", 2, "ctrl_c", GLOO_DEVICE_TRANSPORT=transport) as ranks:
        ranks.succeed()


# What a rank publishes last before the others connect to it.
@pytest.mark.parametrize("transport, key", [("DPDK", ""), ("UDP", "network/")])
def test_GroupIsMade_CtrlCWhileRanksConnect_RaisesKeyboardInterrupt(new_enough, transport, key):
    with ranks_of("door_behaviour.py", 2, "ctrl_c_while_ranks_meet", key, GLOO_DEVICE_TRANSPORT=transport) as ranks:
        ranks.succeed()


@pytest.mark.parametrize("transport", ["DPDK", "UDP"])
def test_AllToAll_InPlace_IsRight(new_enough, transport):
    with ranks_of("door_behaviour.py", 3, "all_to_all_in_place", GLOO_DEVICE_TRANSPORT=transport) as ranks:
        ranks.succeed()


def test_Group_FreeThreadedPython_OneLineSaysNo(new_enough, tmp_path):
    program = (
        "import sysconfig, torch, gloo_bypass, torch.distributed as d\n"
        "known = sysconfig.get_config_var\n"
        "sysconfig.get_config_var = lambda name: 1 if name == 'Py_GIL_DISABLED' else known(name)\n"
        "d.init_process_group('bypass', store=d.HashStore(), rank=0, world_size=1)"
    )
    result = run(["-c", program], environment_for(tmp_path), status=1)
    assert "ImportError: gloo_bypass: the backend 'bypass' needs a Python that has a GIL" in result.stderr


@pytest.mark.parametrize("transport", ["DPDK", "UDP"])
@pytest.mark.parametrize(
    "case",
    [
        "handler_destroys_the_group",
        "handler_waits_for_a_thread_that_destroys_the_group",
        "handler_destroys_the_group_and_exits",
        "handler_calls_the_group",
    ],
)
def test_Handler_OfASignalWithinACall_DoesNotWaitForThatCall(new_enough, case, transport):
    with ranks_of("door_behaviour.py", 2, case, GLOO_DEVICE_TRANSPORT=transport) as ranks:
        ranks.succeed()
        assert [ranks.value(rank, "end") for rank in range(2)] == ["ok"] * 2


@pytest.mark.parametrize("backend, environment", [("bypass", {}), ("gloo", {"GLOO_BYPASS_COLLECTIVES": "own"})])
def test_Profiler_OurOperations_AreEventsAsGloosAre(new_enough, backend, environment):
    with ranks_of("profiled.py", 2, backend, **environment) as ranks:
        ranks.succeed()
        message = ("send[[3,4]]", "recvAnySource[[3,4]]")
        for rank in range(2):
            assert ranks.value(rank, "events").replace(f"{backend}:", "").split() == [
                "all_reduce[[3,4]]",
                "all_reduce[[3,4]]",
                "broadcast[[3,4]]",
                "all_gather[[2]]",
                "all_gather[[2]]",
                "all_reduce[[3,4],[1]]",
                "all_gather[[1],[2]]",
                message[rank],
                "barrier[]",
                "all_reduce[[3,4]]",
            ]


def test_Debug_IsDetail_CollectivesWork(new_enough):
    with ranks_of("door_behaviour.py", 2, "beyond_gloo", TORCH_DISTRIBUTED_DEBUG="DETAIL") as ranks:
        ranks.succeed()


def test_ImportTorch_AnyProgram_KnowsTheBackendAndLoadsNothing(new_enough, tmp_path):
    if not FROM_WHEEL:
        pytest.skip("needs the wheel's entry point")
    program = (
        "import sys, torch, torch.distributed as d; "
        "print(d.is_backend_available('bypass'), 'gloo_bypass' in sys.modules, "
        "'libgloo_bypass' in open('/proc/self/maps').read())"
    )
    assert run(["-c", program], environment_for(tmp_path)).stdout.split() == ["True", "False", "False"]


@pytest.mark.parametrize("value, lines", [("0", 0), ("1", 1)])
def test_NanCheck_IsWanted_OneLineSaysThatNobodyLooks(new_enough, tmp_path, value, lines):
    program = (
        "import gloo_bypass, torch.distributed as d\n"
        "d.init_process_group('bypass', store=d.HashStore(), rank=0, world_size=1)\n"
        "d.new_group([0])\n"
        "d.destroy_process_group()"
    )
    # pytest's folder is too long for sockets.
    environment = environment_for(tmp_path, TORCH_DIST_NAN_CHECK=value, GLOO_BYPASS_MEMIF_DIRECTORY="")
    result = run(["-c", program], environment)
    assert result.stderr.count("TORCH_DIST_NAN_CHECK is set, and the backend 'bypass' does not look for NaN") == lines


def test_Group_OldPyTorch_OneLineSaysNo(installed_torch, tmp_path):
    if installed_torch >= LEAST_TORCH:
        pytest.skip("this PyTorch is new enough")
    program = "import gloo_bypass, torch.distributed as d\n{}"
    for call in (
        "d.init_process_group('bypass', store=d.HashStore(), rank=0, world_size=1)",
        "gloo_bypass.make_group(d.HashStore(), 0, 1)",
    ):
        check_refusal(program.format(call), installed_torch, tmp_path)


def check_refusal(program, installed_torch, tmp_path):
    result = run(["-c", program], environment_for(tmp_path), status=1)
    last = result.stderr.strip().splitlines()[-1]
    needs = f"needs PyTorch 2.6 or later, this is {installed_torch[0]}."
    assert last.startswith(f"RuntimeError: gloo_bypass: the backend 'bypass' {needs}"), last


def test_Setting_OwnCollectivesWithOldPyTorch_ImportSaysNo(installed_torch, tmp_path):
    if installed_torch >= LEAST_TORCH:
        pytest.skip("this PyTorch is new enough")
    environment = environment_for(tmp_path) | {"GLOO_BYPASS_COLLECTIVES": "own"}
    last = run(["-c", "import gloo_bypass"], environment, status=1).stderr.strip().splitlines()[-1]
    assert f"needs PyTorch 2.6 or later, this is {installed_torch[0]}." in last, last


def test_Setting_OwnCollectivesWithOldPyTorch_ImportAfterTorchsWarningAndGlooGroupsSayNo(installed_torch, tmp_path):
    """PyTorch's import turns what autoload() raises into a warning."""
    if installed_torch >= LEAST_TORCH:
        pytest.skip("this PyTorch is new enough")
    program = (
        "import gloo_bypass_autoload as a, torch.distributed as d\n"
        "a.autoload()\n"
        "def said(call):\n"
        "    try: call()\n"
        "    except RuntimeError as error: return 'needs PyTorch 2.6 or later' in str(error)\n"
        "make = lambda: d.init_process_group('gloo', store=d.HashStore(), rank=0, world_size=1)\n"
        "print(said(make), said(lambda: __import__('gloo_bypass')))\n"
    )
    environment = environment_for(tmp_path) | {"GLOO_BYPASS_COLLECTIVES": "own"}
    assert run(["-c", program], environment).stdout.split() == ["True", "True"]
    environment = environment_for(tmp_path) | {"GLOO_BYPASS_COLLECTIVES": "gloo"}
    assert run(["-c", program], environment).stdout.split() == ["None", "None"]


def test_Extension_OnItsOwn_UsesTheLimitedApiAndLinksWithNothingOfOurs():
    module = pathlib.Path(PACKAGE_PATH) / "gloo_bypass" / "_door.abi3.so"
    dynamic = subprocess.run(["readelf", "-d", module], capture_output=True, text=True, timeout=60).stdout
    needed = [line.split("[")[1].rstrip("]") for line in dynamic.splitlines() if "NEEDED" in line]
    assert needed and not [name for name in needed if "gloo" in name or "python" in name or "torch" in name], needed


def test_Extension_UnderEachPythonHere_IsImported(tmp_path):
    """Without PyTorch."""
    module = pathlib.Path(PACKAGE_PATH) / "gloo_bypass" / "_door.abi3.so"
    program = (
        f"import importlib.util as u; s = u.spec_from_file_location('_door', {str(module)!r}); "
        "m = u.module_from_spec(s); s.loader.exec_module(m); print(sorted(n for n in dir(m) if n[0] != '_'))"
    )
    pythons = {PYTHON, sys.executable, *map(str, pathlib.Path("/usr/bin").glob("python3.?*[0-9]"))}
    for python in sorted(pythons):
        result = subprocess.run(
            [python, "-c", program], capture_output=True, text=True, timeout=HANG_SECONDS, env=clean_environment()
        )
        assert "'Group', 'Operation'" in result.stdout, f"{python}: {result.stdout}{result.stderr}"
