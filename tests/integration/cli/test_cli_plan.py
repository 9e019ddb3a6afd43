"""`tenon plan` for a cluster as it is and with changes; it writes nothing."""

from __future__ import annotations

import gzip
import json
from typing import TYPE_CHECKING

import pytest

from bench.command_line import instance_types_document, kubectl_output
from bench.consolidation import underutilized
from tests.unit.scheduling import small_clusters

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.integration.cli.command import CommandResult


@pytest.fixture
def small(tmp_path: Path) -> tuple[str, ...]:
    """Twenty half-empty nodes with 150 pods of one ReplicaSet, as files."""
    cluster = underutilized(20, 150, seed=1)
    listed = kubectl_output(cluster)
    for obj in listed["items"]:
        for owner in obj["metadata"].get("ownerReferences", ()):
            if owner["kind"] == "ReplicaSet":
                owner.update(name="rs", uid="rs")
    (tmp_path / "cluster.json").write_text(json.dumps(listed))
    (tmp_path / "types.json.gz").write_bytes(gzip.compress(json.dumps(instance_types_document(cluster)).encode()))
    return "-f", str(tmp_path / "cluster.json"), "-f", str(tmp_path / "types.json.gz")


def test_a_cluster_from_files_gets_disruptions_and_savings(
    tenon: Callable[..., CommandResult], small: tuple[str, ...]
) -> None:
    plain = tenon("plan", *small, "--search", "20", "--json").json
    cost = plain["costPerHour"]
    actions = plain["disruption"]["actions"]
    gone = [node for a in actions for node in a["nodes"]]
    assert actions[0]["reason"] == "Underutilized"
    assert 0 < len(gone) <= 2, "a budget of a tenth"
    assert cost["after"] == pytest.approx(cost["before"] - cost["savings"])
    assert cost["savings"] > 0
    shown = tenon("plan", *small, "--search", "20")
    assert shown.lines[0].endswith(f"20 nodes · 150 pods · ${cost['before']:.2f}/h")
    assert f"Would then disrupt {len(gone)} node" in shown.out
    assert shown.lines[-1].startswith("20 → ")
    assert "\x1b[" not in shown.out


def test_more_replicas_are_only_launched_in_the_plan(
    tenon: Callable[..., CommandResult], small: tuple[str, ...]
) -> None:
    result = tenon("plan", *small, "--what-if", "replicaset/rs=2000", "--json")
    assert result.code == 0, result.err
    plain = result.json
    placed = sum(len(c["pods"]) for c in plain["launches"]["nodeClaims"])
    room = sum(len(pods) for pods in plain["launches"]["existingNodes"].values())
    assert placed + room == 2000 - 150
    assert placed > 0
    assert plain["costPerHour"]["after"] == pytest.approx(
        plain["costPerHour"]["before"] + plain["costPerHour"]["launches"] - plain["costPerHour"]["savings"], abs=1e-5
    )


def test_fewer_replicas_leave_empty_nodes(tenon: Callable[..., CommandResult], small: tuple[str, ...]) -> None:
    plain = tenon("plan", *small, "--what-if", "rs/rs=0", "--json").json
    assert {a["reason"] for a in plain["disruption"]["actions"]} == {"Empty"}
    assert len(plain["disruption"]["actions"]) == 2
    assert {k["message"] for k in plain["disruption"]["kept"]} >= {
        "disruption budgets of NodePool default allow no more disruptions for reason Empty now"
    }


def test_a_nodepool_of_a_file_is_part_of_the_plan(
    tenon: Callable[..., CommandResult], small: tuple[str, ...], tmp_path: Path
) -> None:
    pool = tmp_path / "pools.yaml"
    pool.write_text(
        "apiVersion: karpenter.sh/v1\nkind: NodePool\nmetadata: {name: big}\nspec:\n  weight: 50\n  template:\n"
        "    spec:\n      nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}\n"
        "      requirements: [{key: node.kubernetes.io/instance-type, operator: In, values: [c5.32x]}]\n"
    )
    plain = tenon("plan", *small, "--what-if", f"nodepool={pool}", "--what-if", "rs/rs=2000", "--json").json
    claims = plain["launches"]["nodeClaims"]
    assert {c["nodePool"] for c in claims} == {"big"}
    assert {c["cheapest"]["instanceType"] for c in claims} == {"c5.32x"}


def test_pods_of_a_lost_zone_are_rescheduled_to_other_zones(
    tenon: Callable[..., CommandResult], small: tuple[str, ...]
) -> None:
    plain = tenon("plan", *small, "--without", "us-east-1a", "--json").json
    assert len(plain["lostNodes"]) == 7
    assert {c["cheapest"]["zone"] for c in plain["launches"]["nodeClaims"]} <= {"us-east-1b", "us-east-1c"}
    assert not plain["launches"]["errors"]


def deployment(path: Path, name: str, replicas: int) -> str:
    """A file of a Deployment of pods with 3 CPUs, and of a kind that no decision asks."""
    path.write_text(
        f"apiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: {name}}}\nspec:\n  replicas: {replicas}\n"
        f"  selector: {{matchLabels: {{app: {name}}}}}\n  template:\n    metadata: {{labels: {{app: {name}}}}}\n"
        "    spec: {containers: [{name: c, image: i, resources: {requests: {cpu: '3'}}}]}\n"
        "---\napiVersion: keda.sh/v1alpha1\nkind: ScaledObject\nmetadata: {name: over}\n"
    )
    return str(path)


def test_a_workload_of_a_file_is_added_to_the_cluster(
    tenon: Callable[..., CommandResult], small: tuple[str, ...], tmp_path: Path
) -> None:
    added = deployment(tmp_path / "new.yaml", "new", 400)
    plain = tenon("plan", *small, "--add", added, "-n", "shop", "--json").json
    new = [key for c in plain["launches"]["nodeClaims"] for key in c["pods"]]
    new += [key for pods in plain["launches"]["existingNodes"].values() for key in pods]
    assert len(new) == 400
    assert {key.partition("/")[0] for key in new} == {"shop"}
    assert "new.yaml: left out, because scheduling doesn't depend on them: 1 ScaledObject" in plain["notes"]
    shown = tenon("plan", *small, "--add", added)
    assert shown.lines[1] == "what if: with new.yaml"


def test_a_workload_that_the_cluster_has_is_not_added(
    tenon: Callable[..., CommandResult], small: tuple[str, ...], tmp_path: Path
) -> None:
    first, second = (deployment(tmp_path / f"{name}.yaml", "new", 3) for name in ("first", "second"))
    for files in (("--add", first), ("-f", first)):
        refused = tenon("plan", *small, *files, "--add", second)
        assert refused.code == 2
        assert "the cluster has deployment/default/new already; --what-if deployment/default/new=N" in refused.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--add", "/nowhere.yaml"], "/nowhere.yaml: No such file"),
        (["--what-if", "web=50"], "is not of the form deployment/NAME=REPLICAS"),
        (["--what-if", "deployment/web=50"], "there is no deployment default/web"),
        (["--what-if", "nodepool=/nowhere.yaml"], "/nowhere.yaml: No such file"),
        (["--without", "spott"], '"spott" is no capacity type'),
    ],
)
def test_invalid_changes_are_reported_in_one_line(
    arguments: list[str], message: str, tenon: Callable[..., CommandResult], small: tuple[str, ...]
) -> None:
    done = tenon("plan", *small, *arguments)
    assert done.code == 2
    assert done.err.count("\n") == 1
    assert message in done.err


def test_a_plan_says_that_a_limit_keeps_cheaper_types_away(tenon: Callable[..., CommandResult], tmp_path: Path) -> None:
    rich = small_clusters.instance_type("r1.xlarge", 4, 32, 0.16)
    lean = small_clusters.instance_type("c1.xlarge", 4, 8, 0.17)
    pods = small_clusters.pods("web", 24, cpu="1", memory="1Gi")
    for limits, said in (({"memory": "1000Gi"}, True), ({"memory": "100000Gi"}, False)):
        objects = [small_clusters.pool(limits=limits), *pods]
        (tmp_path / "cluster.json").write_text(json.dumps({"objects": objects, "instanceTypes": [rich, lean]}))
        shown = tenon("plan", "-f", str(tmp_path / "cluster.json"))
        assert ("cheaper types take more of the limit of memory" in shown.out) == said, shown.out
