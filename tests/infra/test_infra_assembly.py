"""The cloud assembly: its cache key, and the options of ``-c``."""

import hashlib
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from infra import assembly, function_sizes, installation, synthesis
from infra.bundle import bundling
from infra.options.stack_options import NoClusterError, OptionError, clusters, parse

SOURCE = {"bundle": "source", "clusterSide": "printed"}


def resources(folder: Path, cluster: str = "demo") -> dict[str, dict[str, Any]]:
    template = json.loads((folder / f"tenon-{cluster}.template.json").read_text())
    by_logical_id: dict[str, dict[str, Any]] = template["Resources"]
    return by_logical_id


def of_type(folder: Path, kind: str, cluster: str = "demo") -> list[dict[str, Any]]:
    return [r["Properties"] for r in resources(folder, cluster).values() if r["Type"] == kind]


def test_a_second_world_uses_the_cached_assembly(cloud_assembly: Path) -> None:
    stamp = (cloud_assembly / "manifest.json").stat().st_mtime_ns
    again = assembly.cached(cluster="demo", root=assembly.CHECKOUT, context=SOURCE)
    assert again == cloud_assembly
    assert (again / "manifest.json").stat().st_mtime_ns == stamp


def test_the_cache_forgets_what_no_one_has_used_for_an_hour_but_for_the_last_twenty(tmp_path: Path) -> None:
    folders = [tmp_path / f"{number:02}" for number in range(30)]
    now = time.time()
    for number, folder in enumerate(folders):
        folder.mkdir()
        (folder / "template.json").write_text("{}")
        hours = 2 if number < 28 else 0.5
        os.utime(folder, (now, now - hours * 3600 + number))
    installation.keep_recent(folders[0])
    assert set(tmp_path.iterdir()) == {folders[0], *folders[-19:]}
    for folder in folders[-19:]:
        os.utime(folder, (now, now - 1800))
    for number in range(30, 40):
        (tmp_path / str(number)).mkdir()
        installation.keep_recent(tmp_path / str(number))
    assert len(list(tmp_path.iterdir())) == 30  # all within the hour


def test_with_the_functions_code_only_assets_differ_in_the_template(
    cloud_assembly: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = {}
    for name in function_sizes.FUNCTIONS:  # any other content will do: fetching packages needs a network
        code[name] = tmp_path / "code" / name
        code[name].mkdir(parents=True)
        (code[name] / "handler.py").write_text(f"# {name}\n")
    monkeypatch.setattr(bundling, "bundles", lambda *_, mode, machine: code if mode == "full" else {})  # noqa: ARG005 (its signature)
    full = assembly.synthesise(cluster="demo", out=tmp_path / "out", context={"clusterSide": "printed"})

    def masked(folder: Path) -> str:
        return re.sub(r"[0-9a-f]{64}\.zip", "ASSET", (folder / "tenon-demo.template.json").read_text())

    assert masked(full) == masked(cloud_assembly)
    assert (full / "tenon-demo.template.json").read_text() != (cloud_assembly / "tenon-demo.template.json").read_text()


@pytest.fixture(scope="module")
def two_clusters(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Clusters whose names only differ in a character that stack names can't have."""
    return synthesis.make(
        context={**SOURCE, "clusters": ["green-1", "green_1"], "observability": "full"},
        out=tmp_path_factory.mktemp("clusters"),
    )


def test_two_clusters_share_no_metric_no_alarm_and_no_cost_tag(two_clusters: Path) -> None:
    metrics_and_alarms: list[set[str]] = []
    for path in two_clusters.glob("*.template.json"):
        resources = json.loads(path.read_text())["Resources"].values()
        alarms = [r["Properties"] for r in resources if r["Type"] == "AWS::CloudWatch::Alarm"]
        own = [{k: a[k] for k in ("MetricName", "Dimensions")} for a in alarms if a.get("Namespace") == "Tenon"]
        assert own
        named = [r["Properties"]["DashboardName"] for r in resources if r["Type"] == "AWS::CloudWatch::Dashboard"]
        metrics_and_alarms.append({*named, *(a["AlarmName"] for a in alarms), *map(json.dumps, own)})
    first, second = metrics_and_alarms
    assert not first & second
    artifacts = json.loads((two_clusters / "manifest.json").read_text())["artifacts"].values()
    tags = [a["properties"]["tags"] for a in artifacts if a["type"] == "aws:cloudformation:stack"]
    assert tags == [{"eks:eks-cluster-name": "green-1"}, {"eks:eks-cluster-name": "green_1"}]


def test_two_clusters_are_two_stacks_in_one_assembly(two_clusters: Path) -> None:
    buses = {
        path.name: [
            r["Properties"]["Name"] for r in json.loads(path.read_text())["Resources"].values() if "Bus" in r["Type"]
        ]
        for path in two_clusters.glob("*.template.json")
    }
    digest = hashlib.sha256(b"green_1").hexdigest()[:8]
    assert buses == {
        "tenon-green-1.template.json": ["tenon-green-1"],
        f"tenon-green-1-{digest}.template.json": ["tenon-green_1"],
    }


@pytest.fixture(scope="module")
def configured() -> Path:
    """A stack with the options that don't affect each other."""
    context = {
        **SOURCE,
        "nodeRole": "KarpenterNodeRole-demo",
        "nodeRoles": "other",
        "subnets": "subnet-1,subnet-2",
        "securityGroups": "sg-1",
        "tracing": "active",
        "reservedConcurrency": "true",
        "observability": "full",
        "functionArchitecture": "amd64",
    }
    return assembly.cached(cluster="demo", root=assembly.CHECKOUT, context=context)


def test_an_existing_node_role_is_used(configured: Path) -> None:
    out = configured
    assert of_type(out, "AWS::IAM::InstanceProfile") == [{"Roles": ["KarpenterNodeRole-demo"]}]
    assert {entry["Type"] for entry in of_type(out, "AWS::EKS::AccessEntry")} == {"STANDARD"}
    passing = [
        json.dumps(statement["Resource"])
        for policy in of_type(out, "AWS::IAM::Policy")
        for statement in policy["PolicyDocument"]["Statement"]
        if statement["Action"] == "iam:PassRole"
    ]
    assert passing
    assert all(":role/KarpenterNodeRole-demo" in named and ":role/other" in named for named in passing)


def test_functions_of_a_private_cluster_run_in_its_vpc_except_the_catalog_function(configured: Path) -> None:
    placed = {f["Handler"].split(".")[1]: f.get("VpcConfig") for f in of_type(configured, "AWS::Lambda::Function")}
    assert placed.pop(function_sizes.CATALOG) is None  # it needs the Pricing API, which has no endpoint in most VPCs
    assert set(placed) == set(function_sizes.FUNCTIONS) - {function_sizes.CATALOG}
    assert all(
        config == {"SubnetIds": ["subnet-1", "subnet-2"], "SecurityGroupIds": ["sg-1"]} for config in placed.values()
    )
    joining = [p for p in of_type(configured, "AWS::IAM::Policy") if "JoinNetwork" in json.dumps(p)]
    assert len(joining) == len(placed)


def test_concurrency_is_reserved_only_with_the_option(cloud_assembly: Path, configured: Path) -> None:
    # Lambda keeps 100 executions unreserved, so reserving any fails in an account whose quota is 100 or less.
    by_default = of_type(cloud_assembly, "AWS::Lambda::Function")
    assert not [f for f in by_default if "ReservedConcurrentExecutions" in f]
    reserved = {
        f["Handler"].split(".")[1]: f["ReservedConcurrentExecutions"]
        for f in of_type(configured, "AWS::Lambda::Function")
        if "ReservedConcurrentExecutions" in f
    }
    assert reserved == {function_sizes.LIFECYCLE: 1, function_sizes.CATALOG: 1, function_sizes.RELAY: 3}


def test_queues_have_a_maximum_concurrency_only_with_the_option(cloud_assembly: Path, configured: Path) -> None:
    # With a maximum, Lambda polls a queue with little traffic by five pollers instead of two.
    by_default = of_type(cloud_assembly, "AWS::Lambda::EventSourceMapping")
    assert len(by_default) == 4
    assert not [mapping for mapping in by_default if "ScalingConfig" in mapping]
    limits = [m.get("ScalingConfig") for m in of_type(configured, "AWS::Lambda::EventSourceMapping")]
    assert sorted(limit["MaximumConcurrency"] for limit in limits if limit) == [2, 2, 5]


def test_the_throttles_of_every_function_count_unless_its_concurrency_is_reserved(
    configured: Path,
) -> None:
    everything = assembly.cached(cluster="demo", root=assembly.CHECKOUT, context={**SOURCE, "observability": "full"})
    for folder, expected in ((everything, 7), (configured, 4)):
        (alarm,) = (a for a in of_type(folder, "AWS::CloudWatch::Alarm") if a["AlarmName"].endswith("-throttles"))
        assert len([m for m in alarm["Metrics"] if "MetricStat" in m]) == expected


def test_functions_run_on_the_architecture_of_the_option(cloud_assembly: Path, configured: Path) -> None:
    for folder, architecture in ((cloud_assembly, "arm64"), (configured, "x86_64")):
        assert {tuple(f["Architectures"]) for f in of_type(folder, "AWS::Lambda::Function")} == {(architecture,)}


def test_invocations_are_traced_only_with_the_option(cloud_assembly: Path, configured: Path) -> None:
    for folder, mode, roles in (
        (configured, {"Mode": "Active"}, len(function_sizes.FUNCTIONS)),
        (cloud_assembly, None, 0),
    ):
        assert all(function.get("TracingConfig") == mode for function in of_type(folder, "AWS::Lambda::Function"))
        allowed = [p for p in of_type(folder, "AWS::IAM::Policy") if "xray:PutTraceSegments" in json.dumps(p)]
        assert len(allowed) == roles


@pytest.mark.parametrize(
    ("context", "message"),
    [
        ({"tracing": "on"}, "-c tracing=on: must be off or active"),
        ({"bundle": "none"}, "-c bundle=none: must be full or source"),
        ({"clusterSide": "no"}, "-c clusterSide=no: must be applied or printed"),
        ({"kinds": False}, "-c kinds=False: must be applied or kept"),
        ({"subnets": "subnet-1"}, "give both"),
        ({"reservedConcurrency": "maybe"}, "-c reservedConcurrency=maybe: must be false or true"),
        (
            {"relay": "pod", "relayArchitecture": "riscv64"},
            "relayArchitecture=riscv64: must be both or arm64 or amd64",
        ),
        (
            {"relay": "pod", "relayTolerations": "a=b:Never"},
            "relayTolerations=a=b:Never: must be taints KEY[=VALUE]",
        ),
        ({"relay": "pod", "relayTolerations": "=b"}, "-c relayTolerations==b: must be taints"),
        ({"relay": "pod", "oidcProvider": "arn:aws:iam::1:oidc-provider/x"}, "must be the cluster's OIDC issuer"),
        ({"relay": "lambda"}, "-c relay=lambda: must be function or pod"),
        ({"relayImage": "registry.example/relay:1"}, "-c relayImage: is for the relay as a pod; give -c relay=pod"),
        ({"relayMemory": "64"}, "-c relayMemory=64: must be MiB from 128 to 10240"),
        ({"relayMemory": "1GiB"}, "-c relayMemory=1GiB: must be MiB from 128 to 10240"),
        ({"sweepMemory": "512"}, "-c sweepMemory=512: must be MiB from 885 to 10240"),
        ({"clusterSize": "20000"}, "-c clusterSize=20000: must be nodes from 1 to 15000"),
        ({"nodeRoles": 3}, "-c nodeRoles=3: must be names separated by commas"),
    ],
)
def test_an_invalid_option_is_rejected_with_its_value_and_the_allowed_ones(
    context: dict[str, object], message: str
) -> None:
    with pytest.raises(OptionError, match=re.escape(message)):
        parse(context, cluster="demo")


@pytest.mark.parametrize("name", ["-demo", "de mo", "x" * 101])
def test_a_cluster_name_that_eks_does_not_allow_is_rejected(name: str) -> None:
    with pytest.raises(OptionError, match="an EKS cluster's name"):
        clusters({"cluster": name})


def test_without_a_cluster_nothing_is_made() -> None:
    with pytest.raises(NoClusterError, match="give -c cluster=NAME"):
        clusters({})


def test_the_app_accepts_context_and_prints_errors_in_one_line() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "infra.app", "-c", "bundle=source", "-c", "cluster=de mo"],
        capture_output=True,
        text=True,
        check=False,
        cwd=assembly.CHECKOUT,
    )
    assert done.returncode == 1
    assert done.stderr.strip().count("\n") == 0
    assert "-c cluster=de mo" in done.stderr
