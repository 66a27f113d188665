"""The files that other launchers read: Kubernetes manifests, compose files, the Slurm script. Linters, and what linters
do not know: that they ask for the same as scripts/run-containers does.

The Kubernetes linter is Debian's Python client: each document must survive being read into the API's models and written
back, which finds unknown and misplaced fields, wrong types and missing ones. It knows no schema of values and no
cluster: device plugins, quotas and admission are not judged.
"""

import json
import os
import pathlib
import re
import shutil
import subprocess

import pytest
from conftest import ROOT

from gloo_bypass_tools.containers.compose import compose_file
from gloo_bypass_tools.containers.recipes import RECIPES

yaml = pytest.importorskip("yaml", reason="python3-yaml is not installed: run scripts/install-packages")
CONTAINERS = ROOT / "containers"
COMPOSE = {"TCP": "tcp", "UDP": "udp", "DPDK": "memif", "DPDK-netdev": "netdev", "RDMA": "rdma"}
MANIFESTS = {"DPDK": "memif", "DPDK-netdev": "netdev", "RDMA": "rdma"}
MODELS = {("batch/v1", "Job"): "V1Job", ("v1", "Service"): "V1Service"}


def tool(name):
    if not shutil.which(name):
        pytest.skip(f"{name} is not installed: run scripts/install-packages")
    return name


def documents(name):
    return list(yaml.safe_load_all((CONTAINERS / "kubernetes" / f"{name}.yaml").read_text()))


class Answer:
    """What the client's reader takes: an HTTP answer."""

    def __init__(self, document):
        self.data = json.dumps(document)


def model_fault(document):
    """Why the API's models do not accept this document; empty if they do."""
    client = pytest.importorskip(
        "kubernetes.client", reason="python3-kubernetes is not installed: run scripts/install-packages"
    )
    model = MODELS.get((document.get("apiVersion"), document.get("kind")))
    if not model:
        return f"unknown kind {document.get('apiVersion')} {document.get('kind')}"
    api = client.ApiClient()
    try:
        back = api.sanitize_for_serialization(api.deserialize(Answer(document), model))
    except (ValueError, TypeError, client.ApiException) as error:
        return str(error)
    return "" if back == document else "a field is unknown, misplaced or of another type"


@pytest.mark.parametrize("name", MANIFESTS.values())
def test_Kubernetes_EachDocument_FitsTheApi(name):
    for document in documents(name):
        assert model_fault(document) == ""


@pytest.mark.parametrize(
    "break_it",
    [
        lambda job: job["spec"].update(backofLimit=1),
        lambda job: job["spec"].update(completions="2"),
        lambda job: job["spec"].pop("template"),
        lambda job: job["spec"]["template"]["spec"]["containers"][0].pop("name"),
        lambda job: job["spec"]["template"].update(restartPolicy="Never"),
        lambda job: job.update(kind="Jop"),
    ],
)
def test_KubernetesLinter_FaultPlanted_IsFound(break_it):
    job = documents("netdev")[1]
    break_it(job)
    assert model_fault(job)


def ranks_of(job):
    """Container specifications, one for each rank or one for all."""
    return job["spec"]["template"]["spec"]["containers"]


def plain_environment(container):
    return {entry["name"]: entry["value"] for entry in container["env"] if "value" in entry}


@pytest.mark.parametrize("transport, name", MANIFESTS.items())
def test_Kubernetes_Transport_IsTheLaunchers(transport, name):
    recipe = RECIPES[transport]
    job = documents(name)[-1]
    for container in ranks_of(job):
        assert recipe.environment.items() <= plain_environment(container).items()
        capabilities = container["securityContext"]["capabilities"]
        assert capabilities["drop"] == ["ALL"]
        # Pods cannot raise the limit on locked memory: the capability stands in its place.
        expected = recipe.granted("capability") or (["IPC_LOCK"] if recipe.granted("limit") else [])
        assert capabilities.get("add", []) == expected
        assert "privileged" not in container["securityContext"]
        assert container["securityContext"]["allowPrivilegeEscalation"] is False
    assert job["spec"]["template"]["spec"].get("hostNetwork", False) == recipe.host_network


@pytest.mark.parametrize("name", ["netdev", "rdma"])
def test_Kubernetes_IndexedJob_RanksFindRankZero(name):
    service, job = documents(name)
    spec, pod = job["spec"], job["spec"]["template"]["spec"]
    environment = plain_environment(ranks_of(job)[0])
    assert spec["completionMode"] == "Indexed" and spec["completions"] == spec["parallelism"] == int(
        environment["WORLD_SIZE"]
    )
    assert service["spec"]["selector"] == {"job-name": job["metadata"]["name"]}
    assert pod["subdomain"] == service["metadata"]["name"]
    assert environment["MASTER_ADDR"] == f"{job['metadata']['name']}-0.{service['metadata']['name']}"


def test_Kubernetes_OnePodOfRanks_CountsThem():
    containers = ranks_of(documents("memif")[0])
    assert [plain_environment(container)["RANK"] for container in containers] == [
        str(n) for n in range(len(containers))
    ]
    assert {plain_environment(container)["WORLD_SIZE"] for container in containers} == {str(len(containers))}


@pytest.mark.parametrize("transport, name", COMPOSE.items())
def test_ComposeFile_Committed_IsWhatTheCommandPrints(transport, name):
    assert (CONTAINERS / "compose" / f"{name}.yaml").read_text() == compose_file(RECIPES[transport], 2)


@pytest.mark.parametrize("transport", RECIPES)
def test_ComposeFile_AnyNumberOfRanks_NamesEachRankOnce(transport):
    services = yaml.safe_load(compose_file(RECIPES[transport], 5))["services"]
    assert [service["environment"]["RANK"] for service in services.values()] == ["0", "1", "2", "3", "4"]
    assert all(service["cap_drop"] == ["ALL"] for service in services.values())


def test_Readme_EveryGrant_IsExplained():
    readme = (CONTAINERS / "README.md").read_text()
    for recipe in RECIPES.values():
        for grant in recipe.grants:
            assert grant.reason in readme, f"{recipe.transport}, {grant.value}: {grant.reason}"


def test_Yaml_AllFiles_LintClean():
    done = subprocess.run(
        [tool("yamllint"), "--strict", "-c", CONTAINERS / "yamllint.yaml", CONTAINERS], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_Shell_AllScripts_ShellcheckClean():
    scripts = [
        CONTAINERS / "slurm" / "train.sbatch",
        CONTAINERS / "stage-programs",
        CONTAINERS / "guest-storage",
        ROOT / "scripts" / "install-packages",
    ]
    done = subprocess.run([tool("shellcheck"), "--severity=warning", *scripts], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def programs_to_stage():
    text = (CONTAINERS / "stage-programs").read_text()
    return re.search(r"^programs=\((.*?)\)", text, re.DOTALL | re.MULTILINE).group(1).split()


def stage(build, destination):
    if not list(pathlib.Path("/usr/lib").glob("*/dpdk/pmds-*/librte_net_memif.so")):
        pytest.skip("DPDK's drivers are not installed: run scripts/install-packages")
    command = [CONTAINERS / "stage-programs", build, destination]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


@pytest.fixture(name="build")
def fixture_build(tmp_path):
    """A build folder whose programs do nothing."""
    build = tmp_path / "build"
    python = ROOT / "plugin" / "python"
    shutil.copytree(python, build / "plugin" / "python", ignore=shutil.ignore_patterns("__pycache__"))
    for file in (build / "plugin" / "python" / "gloo_bypass.dist-info").glob("*.in"):
        file.rename(file.with_suffix(""))
    for program in programs_to_stage():
        (build / program).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy("/bin/true", build / program)
    (build / "trainer").mkdir(exist_ok=True)
    (build / "trainer" / "sample.txt").touch()
    return build


def test_StagedPrograms_HaveTheWholePackage(build, tmp_path):
    """A rank's image imports gloo_bypass from what is staged, and the package the modules beside it."""
    done = stage(build, tmp_path / "stage")
    assert done.returncode == 0, done.stderr
    python = build / "plugin" / "python"
    wanted = {path.relative_to(python) for path in python.rglob("*") if path.suffix in (".py", ".typed", ".so")}
    wanted |= {pathlib.Path("gloo_bypass.dist-info", name) for name in ("METADATA", "entry_points.txt")}
    staged = tmp_path / "stage" / "gloo-bypass" / "plugin" / "python"
    assert {path.relative_to(staged) for path in staged.rglob("*") if path.is_file()} == wanted and len(wanted) > 5


@pytest.mark.parametrize("program", programs_to_stage())
def test_StagedPrograms_OneIsMissing_IsNamedAndNothingIsMade(build, tmp_path, program):
    (build / program).unlink()
    done = stage(build, tmp_path / "stage")
    assert done.returncode == 1 and done.stderr.startswith(f"stage-programs: {build / program} is missing")
    assert not (tmp_path / "stage").exists()


def test_Containerfile_Targets_BuildAllThatIsStaged():
    build = os.environ.get("CONTAINERS_BUILD")
    if not build:
        pytest.skip("the trainer or the plug-in is not in this build")
    targets = re.findall(r"--target (\S+/\S+)", (CONTAINERS / "Containerfile").read_text())
    needed = subprocess.run(
        ["ninja", "-n", "-C", build, "-t", "inputs", *targets], capture_output=True, text=True, check=True, timeout=60
    ).stdout.splitlines()
    assert targets and set(programs_to_stage()) - {*targets, *needed} == set()


def test_Readme_PackagesToAdd_AreThoseOfTheContainerfile():
    named = set(re.findall(r"--package ([\w-]+)", (CONTAINERS / "README.md").read_text()))
    comment = re.search(r"^# +EXTRA_PACKAGES .*", (CONTAINERS / "Containerfile").read_text(), re.MULTILINE).group(0)
    assert named == set(re.findall(r"(\S+) for ", comment.partition(":")[2])) != set()


# The Slurm script's own logic, with test doubles for srun and scontrol.

SRUN = """#!/bin/bash
while [[ $1 == --* ]]; do
  [[ $1 != --cpus-per-task=* ]] || export CPUS="${1#*=}"
  shift
done
for ((task = 0; task < 2; task++)); do
  SLURM_PROCID=$task SLURM_NTASKS=2 SLURM_LOCALID=$task SLURM_GTIDS=0,1 "$@" || exit
done
"""


@pytest.fixture
def slurm(tmp_path):
    doubles = {
        "srun": SRUN,
        "scontrol": "#!/bin/sh\nprintf 'node7\\nnode8\\n'\n",
        "program": '#!/bin/sh\necho "$RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE $MASTER_ADDR:$MASTER_PORT '
        '$GLOO_DEVICE_TRANSPORT $GLOO_BYPASS_LINK $CPUS cores, $OMP_NUM_THREADS threads $*"\n',
    }
    for name, text in doubles.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)

    def run(*arguments, **variables):
        environment = {
            "PATH": f"{tmp_path}:{os.environ['PATH']}",
            "PROGRAM": "program",
            "SLURM_JOB_ID": "20005",
            "SLURM_JOB_NUM_NODES": "2",
            "SLURM_JOB_NODELIST": "node[7-8]",
            "SLURM_SUBMIT_DIR": str(ROOT),
            **variables,
        }
        done = subprocess.run(
            ["bash", CONTAINERS / "slurm" / "train.sbatch", *arguments],
            env=environment,
            capture_output=True,
            text=True,
            timeout=30,
        )
        return done.returncode, done.stdout.splitlines(), done.stderr

    return run


@pytest.mark.parametrize(
    "transport, told", [("UDP", "UDP "), ("DPDK", "DPDK "), ("DPDK-netdev", "DPDK netdev"), ("RDMA", "RDMA ")]
)
def test_Slurm_TwoTasks_AreTwoRanks(slurm, transport, told):
    status, out, err = slurm("--steps", "3", TRANSPORT=transport, SLURM_CPUS_PER_TASK="8")
    assert status == 0, err
    wanted = f"node7:28005 {told} 8 cores, 8 threads --steps 3"
    assert out == [f"{rank}/2 {rank}/2 {wanted}" for rank in range(2)]


def test_Slurm_FolderWithABlank_HasTheProgram(slurm, tmp_path):
    program = tmp_path / "my work/build/trainer/ddp_train"
    program.parent.mkdir(parents=True)
    (tmp_path / "program").rename(program)
    status, out, err = slurm(PROGRAM="", SLURM_SUBMIT_DIR=str(tmp_path / "my work"))
    assert status == 0 and len(out) == 2, err


@pytest.mark.parametrize(
    "variables, says",
    [
        ({"TRANSPORT": "QUIC"}, "TCP, UDP, DPDK, DPDK-netdev or RDMA"),
        ({"SLURM_JOB_ID": ""}, "sbatch"),
        ({"PROGRAM": "not-there"}, "not-there is not there"),
    ],
)
def test_Slurm_WrongSetting_OneLineAndStatusTwo(slurm, variables, says):
    status, out, err = slurm(**variables)
    assert (status, out, len(err.splitlines())) == (2, [], 1) and says in err
