"""The examples run as they are, here on the CPU."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

EXAMPLES = Path(__file__).parents[1] / "examples"


@pytest.fixture
def example(tmp_path):
    """Run an example in a folder of its own; what it printed."""

    def example(name, *arguments):
        command = [sys.executable, EXAMPLES / name, *arguments]
        ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert ran.returncode == 0, ran.stdout + ran.stderr
        return ran.stdout

    return example


@pytest.mark.thorough
def test_the_trace_schema(example, tmp_path):
    printed = example("trace_schema.py", "--batch-sizes=8")
    assert "definition rmsnorm_h512: batch_size (var), hidden_size (const)" in printed
    assert "solution triton_h512: triton" in printed
    assert "torch_h512     batch_size=8     PASSED" in printed
    assert "best: " in printed
    document = json.loads((tmp_path / "traces.json").read_text())
    assert "torch_h512" in {trace["solution"] for trace in document["traces"]}
    assert len(document["solutions"]) == 4


@pytest.mark.thorough
def test_a_custom_kernel(example, tmp_path):
    printed = example("custom_kernel.py", "--batch-sizes=8")
    assert "deployed: fused_add_rmsnorm_h1024_" in printed
    assert "pytorch              8  " in printed
    assert (tmp_path / "dataset/traces/example/fused_add_rmsnorm").is_dir()


WORKFLOWS = [
    *sorted((EXAMPLES.parent / ".github/workflows").iterdir()),
    EXAMPLES / "distributed/github-shards.yml",
]
DISTRIBUTED = sorted((EXAMPLES / "distributed").iterdir())


@pytest.mark.parametrize("path", DISTRIBUTED, ids=lambda path: path.name)
def test_examples_for_clusters_are_well_formed_and_use_options_that_exist(path, pytester):
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".sh":
        subprocess.run(["bash", "-n", path], check=True)
        if shellcheck := shutil.which("shellcheck"):  # it can't know what a sourced file does
            subprocess.run([shellcheck, "--exclude=SC1091", path], check=True)
    else:
        assert yaml.safe_load(text)
    helped = pytester.runpytest("--help").outlines
    known = {word for line in helped for word in re.findall(r"--fib[\w-]+", line)}
    assert set(re.findall(r"--fib[\w-]+", text)) <= known


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_workflows_are_what_github_takes(path):
    pytest.importorskip("check_jsonschema")
    command = [sys.executable, "-m", "check_jsonschema"]
    subprocess.run([*command, "--builtin-schema=vendor.github-workflows", path], check=True)


def test_the_pods_of_the_ray_job_are_what_kubernetes_takes():
    """No package has the schema of what is around the pods, which is KubeRay's own."""
    kubernetes_validate = pytest.importorskip("kubernetes_validate")
    job = yaml.safe_load((EXAMPLES / "distributed/kuberay.yaml").read_text(encoding="utf-8"))
    cluster = job["spec"]["rayClusterSpec"]
    for group in (cluster["headGroupSpec"], *cluster["workerGroupSpecs"]):
        pod = {"apiVersion": "v1", "kind": "PodTemplate", "template": group["template"]}
        newest = kubernetes_validate.latest_version()
        kubernetes_validate.validate(pod, newest, strict=True)
        assert all(isinstance(value, str) for value in group["rayStartParams"].values())
