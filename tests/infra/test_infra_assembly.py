"""The cloud assembly: its cache key, and the options of ``-c``."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from infra import assembly, bundling, function_sizes
from infra.stack_options import OptionError, clusters, parse

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


def test_with_the_functions_code_only_assets_differ_in_the_template(
    cloud_assembly: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = {}
    for name in function_sizes.FUNCTIONS:  # any other content will do: fetching packages needs a network
        code[name] = tmp_path / "code" / name
        code[name].mkdir(parents=True)
        (code[name] / "handler.py").write_text(f"# {name}\n")
    monkeypatch.setattr(bundling, "bundles", lambda _checkout, *, mode: code if mode == "full" else {})
    full = assembly.synthesise(cluster="demo", out=tmp_path / "out", context={"clusterSide": "printed"})

    def masked(folder: Path) -> str:
        return re.sub(r"[0-9a-f]{64}\.zip", "ASSET", (folder / "tenon-demo.template.json").read_text())

    assert masked(full) == masked(cloud_assembly)
    assert (full / "tenon-demo.template.json").read_text() != (cloud_assembly / "tenon-demo.template.json").read_text()


def test_two_clusters_are_two_stacks_in_one_assembly(tmp_path: Path) -> None:
    assembly.make(context={**SOURCE, "clusters": ["blue", "green_1"]}, out=tmp_path)
    assert {p.name for p in tmp_path.glob("*.template.json")} == {
        "tenon-blue.template.json",
        "tenon-green-1.template.json",
    }
    names = {bus["Name"] for c in ("blue", "green-1") for bus in of_type(tmp_path, "AWS::Events::EventBus", c)}
    assert names == {"tenon-blue", "tenon-green_1"}


def test_an_existing_node_role_is_used(tmp_path: Path) -> None:
    out = assembly.synthesise(
        cluster="demo", out=tmp_path, context={**SOURCE, "nodeRole": "KarpenterNodeRole-demo", "nodeRoles": "other"}
    )
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


def test_functions_of_a_private_cluster_run_in_its_vpc(tmp_path: Path) -> None:
    context = {**SOURCE, "subnets": "subnet-1,subnet-2", "securityGroups": "sg-1", "reservedConcurrency": "false"}
    out = assembly.synthesise(cluster="demo", out=tmp_path, context=context)
    for function in of_type(out, "AWS::Lambda::Function"):
        assert function["VpcConfig"] == {"SubnetIds": ["subnet-1", "subnet-2"], "SecurityGroupIds": ["sg-1"]}
        assert "ReservedConcurrentExecutions" not in function
    joining = [p for p in of_type(out, "AWS::IAM::Policy") if "JoinNetwork" in json.dumps(p)]
    assert len(joining) == len(function_sizes.FUNCTIONS)


def test_invocations_are_traced_only_with_the_option(cloud_assembly: Path, tmp_path: Path) -> None:
    out = assembly.synthesise(cluster="demo", out=tmp_path, context={**SOURCE, "tracing": "active"})
    for folder, mode, roles in ((out, {"Mode": "Active"}, len(function_sizes.FUNCTIONS)), (cloud_assembly, None, 0)):
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
        ({"reservedConcurrency": "maybe"}, "-c reservedConcurrency=maybe: must be true or false"),
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


def test_without_a_cluster_the_error_says_how_to_give_one() -> None:
    with pytest.raises(OptionError, match="give -c cluster=NAME"):
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
