"""`tenon migrate cluster-autoscaler`: takes node groups over, gives them back, and refuses what would harm."""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import boto3
import pytest

from local.aws.calls import CALLER
from local.faults import Crash
from local.kubernetes import kinds
from local.world import Options, World
from shared.base import runtime
from tests.e2e.cli.conftest import CLUSTER
from tests.e2e.node_groups import TAG, auto_scaling_group, managed_node_group, sizes
from tests.integration.cli.command import CommandResult, call

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

NAME = "cluster-autoscaler-aws-cluster-autoscaler"
COMMAND = (
    "./cluster-autoscaler",
    "--cloud-provider=aws",
    "--namespace=kube-system",
    f"--node-group-auto-discovery=asg:tag={TAG}enabled,{TAG}{CLUSTER}",
    "--expander=least-waste",
    "--scale-down-unneeded-time=5m",
    "--balance-similar-node-groups=true",
    "--logtostderr=true",
)
OPTIONS = {"expander": "least-waste", "scale-down-unneeded-time": "5m"}


@dataclass(frozen=True)
class Cluster:
    """A cluster with node groups, and a Cluster Autoscaler whose Lease is fresh while it has a running pod."""

    world: World
    kubeconfig: Path

    def migrate(self, *arguments: str, caller: str = "") -> CommandResult:
        """Call the command; while it waits, the cluster continues. With a caller, faults can crash it."""
        host = runtime.Runtime(environ=os.environ, now=self.world.clock.now, sleep=self._sleep)
        token = CALLER.set(caller)
        try:
            with runtime.using(host):
                command = ("migrate", "cluster-autoscaler", *arguments, "--cluster", CLUSTER)
                return call(*command, env={"KUBECONFIG": str(self.kubeconfig)})
        finally:
            CALLER.reset(token)

    def _sleep(self, seconds: float) -> None:
        token = CALLER.set("")
        try:
            self.world.run_for(timedelta(seconds=seconds))
            if self.autoscaler_pods():
                self.renew_lease()
        finally:
            CALLER.reset(token)

    def renew_lease(self) -> None:
        self.world.apply(
            {
                "apiVersion": "coordination.k8s.io/v1",
                "kind": "Lease",
                "metadata": {"name": "cluster-autoscaler", "namespace": "kube-system"},
                "spec": {
                    "holderIdentity": "autoscaler",
                    "renewTime": f"{self.world.clock.now():%Y-%m-%dT%H:%M:%S.%fZ}",
                },
            }
        )

    def autoscaler(
        self, command: Sequence[str] = COMMAND, *, replicas: int = 2, namespace: str = "kube-system"
    ) -> None:
        labels = {"app.kubernetes.io/name": "aws-cluster-autoscaler", "app.kubernetes.io/instance": "ca"}
        container = {"name": "aws-cluster-autoscaler", "image": "x", "command": list(command)}
        self.world.apply(
            {
                "apiVersion": "apps/v1",
                "kind": "Deployment",
                "metadata": {"name": NAME, "namespace": namespace, "labels": labels},
                "spec": {
                    "replicas": replicas,
                    "selector": {"matchLabels": labels},
                    "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
                },
            }
        )
        self.world.run_until(lambda: len(self.autoscaler_pods()) == replicas)

    def autoscaler_pods(self) -> list[Any]:
        return [pod for pod in self.world.pods(phase="Running") if pod["metadata"]["namespace"] == "kube-system"]

    @property
    def replicas(self) -> int:
        (deployment,) = self.world.store.list(kinds.DEPLOYMENTS)
        return int(deployment["spec"]["replicas"])

    @property
    def config_map(self) -> Any:
        config_maps = self.world.store.list(kinds.CONFIG_MAPS)
        return next((c for c in config_maps if c["metadata"]["name"] == "tenon-node-groups"), None)

    @property
    def version(self) -> int:
        """It changes with every write."""
        return int(self.world.store.version)


def running(tmp_path: Path, context: dict[str, str]) -> Iterator[Cluster]:
    with World(cluster=CLUSTER, options=Options(context=context)) as world:
        path = tmp_path / "kubeconfig"
        path.write_text(world.kubectl_config())
        cluster = Cluster(world, path)
        managed_node_group(world, "batch", desired=1, maximum=6)
        world.run_until(lambda: len(world.nodes()) == 1)
        cluster.renew_lease()
        yield cluster


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    yield from running(tmp_path, {"nodeGroups": "on"})


def test_without_apply_nothing_is_changed(cluster: Cluster) -> None:
    cluster.autoscaler()
    before = cluster.version
    shown = cluster.migrate()
    assert (shown.code, shown.err) == (0, "")
    assert shown.lines[0] == f"{CLUSTER} · Deployment kube-system/{NAME} · 2 replicas · 1 node group"
    rows = {line.split()[0]: line for line in shown.lines if line.startswith("  --")}
    assert "kept" in rows["--expander=least-waste"]
    assert "different" in rows["--balance-similar-node-groups=true"]
    assert "no meaning" in rows["--logtostderr=true"]
    assert "nothing was changed" in shown.lines[-1]
    assert cluster.version == before
    assert (cluster.replicas, cluster.config_map) == (2, None)


@pytest.mark.flow
def test_apply_then_again_then_undo(cluster: Cluster) -> None:
    cluster.autoscaler()
    applied = cluster.migrate("--apply")
    assert (applied.code, applied.err) == (0, "")
    assert cluster.replicas == 0
    assert cluster.autoscaler_pods() == []
    stored = cluster.config_map
    assert stored["data"] == OPTIONS
    assert stored["metadata"]["annotations"] == {
        "tenon.sh/replaced-deployment": f"kube-system/{NAME}",
        "tenon.sh/replaced-replicas": "2",
    }
    assert "scaled Deployment" in applied.out
    assert "--undo" in applied.lines[-1]

    before = cluster.version
    again = cluster.migrate("--apply")
    assert (again.code, cluster.version) == (0, before)
    assert "nothing to do" in again.lines[-1]

    undone = cluster.migrate("--undo")
    assert (undone.code, undone.err) == (0, "")
    assert (cluster.replicas, cluster.config_map) == (2, None)
    assert len(cluster.autoscaler_pods()) == 2
    nothing = cluster.migrate("--undo")
    assert (nothing.code, nothing.out) == (1, "")
    assert "nothing to undo" in nothing.err


def test_tenon_scales_the_groups_after_the_migration(cluster: Cluster) -> None:
    cluster.autoscaler(replicas=1)
    group = boto3.client("autoscaling").describe_auto_scaling_groups()["AutoScalingGroups"][0]["AutoScalingGroupName"]
    container = {"name": "c", "image": "x", "resources": {"requests": {"cpu": "1500m"}}}
    labels = {"app": "job"}
    cluster.renew_lease()
    cluster.world.apply(
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": "job", "namespace": "default"},
            "spec": {
                "replicas": 3,
                "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
            },
        }
    )
    cluster.world.run_for(timedelta(seconds=40))
    assert sizes(group)[1] == 1
    cluster.renew_lease()
    assert cluster.migrate("--apply", "--name", NAME).code == 0
    cluster.world.run_until(
        lambda: len([p for p in cluster.world.pods(phase="Running") if p["metadata"]["namespace"] == "default"]) == 3,
        limit=timedelta(minutes=10),
    )
    assert sizes(group)[1] > 1
    assert cluster.world.failures() == []


def test_the_same_as_json(cluster: Cluster) -> None:
    cluster.autoscaler(replicas=1)
    plan = cluster.migrate("--json").json
    assert (plan["deployment"], plan["replicas"]) == (f"kube-system/{NAME}", 1)
    assert (plan["options"], plan["obstacles"], plan["applied"], plan["changed"]) == (OPTIONS, [], False, [])
    assert {"flag": "expander", "value": "least-waste", "outcome": "kept", "note": "", "option": "expander"} in plan[
        "flags"
    ]
    assert len(plan["groups"]) == 1
    applied = cluster.migrate("--apply", "--json").json
    assert (applied["applied"], len(applied["changed"])) == (True, 2)
    undone = cluster.migrate("--undo", "--json").json
    assert (undone["replicas"], len(undone["changed"])) == (1, 2)


@pytest.mark.parametrize("when", ["apply", "undo"])
def test_dying_between_any_two_writes_is_repaired_by_the_next_run(cluster: Cluster, when: str) -> None:
    cluster.autoscaler()
    if when == "undo":
        assert cluster.migrate("--apply").code == 0
    crashes = cluster.world.faults.crash_around_each_write("migrate")
    for _ in range(4):
        with pytest.raises(Crash):
            cluster.migrate(f"--{when}", caller="migrate")
        # Cluster Autoscaler's replicas are known as long as it isn't as it was.
        annotations = (cluster.config_map or {"metadata": {}})["metadata"].get("annotations", {})
        assert cluster.replicas == 2 or annotations["tenon.sh/replaced-replicas"] == "2"
    result = cluster.migrate(f"--{when}", caller="migrate")
    assert not crashes.remaining
    if when == "apply":
        assert result.code == 0
        assert (cluster.replicas, cluster.config_map["data"]) == (0, OPTIONS)
        assert cluster.config_map["metadata"]["annotations"]["tenon.sh/replaced-replicas"] == "2"
    else:
        # The last death was after everything was written.
        assert (result.code, "nothing to undo" in result.err) == (1, True)
        assert (cluster.replicas, cluster.config_map) == (2, None)


def test_the_options_stay_until_cluster_autoscaler_works_again(cluster: Cluster) -> None:
    cluster.autoscaler()
    assert cluster.migrate("--apply").code == 0
    late = cluster.migrate("--undo", "--timeout", "0")
    assert late.code == 1
    assert "doesn't renew Lease kube-system/cluster-autoscaler" in late.err
    assert (cluster.replicas, cluster.config_map["data"]) == (2, OPTIONS)
    assert cluster.migrate("--undo").code == 0
    assert cluster.config_map is None


def test_edited_options_and_the_record_stay_when_somebody_started_it_again(cluster: Cluster) -> None:
    cluster.autoscaler()
    assert cluster.migrate("--apply").code == 0
    cluster.world.apply({**cluster.config_map, "data": {"expander": "price"}})
    cluster.autoscaler(replicas=1)
    again = cluster.migrate("--apply")
    assert again.code == 0
    assert "stays as it is" in again.out
    assert (cluster.replicas, cluster.config_map["data"]) == (0, {"expander": "price"})
    assert cluster.config_map["metadata"]["annotations"]["tenon.sh/replaced-replicas"] == "2"


def test_a_config_map_of_somebody_else_is_kept_without_force(cluster: Cluster) -> None:
    cluster.autoscaler()
    metadata = {"name": "tenon-node-groups", "namespace": "kube-system"}
    cluster.world.apply(
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"expander": "price", "groups": "a"}}
    )
    refused = cluster.migrate("--apply")
    assert refused.code == 1
    assert "tenon-node-groups exists" in refused.err
    assert (cluster.replicas, cluster.config_map["data"]["expander"]) == (2, "price")
    assert cluster.migrate("--apply", "--force").code == 0
    assert (cluster.replicas, cluster.config_map["data"]) == (0, OPTIONS)


def test_a_deployment_without_node_groups_is_refused(tmp_path: Path) -> None:
    for cluster in running(tmp_path, {}):
        cluster.autoscaler()
        for arguments in ((), ("--apply",)):
            refused = cluster.migrate(*arguments)
            assert refused.code == 1
            assert "-c nodeGroups=on" in refused.err
            assert (cluster.replicas, cluster.config_map) == (2, None)
        assert cluster.migrate("--apply", "--force").code == 0
        assert cluster.replicas == 0


def test_no_or_several_deployments_are_refused(cluster: Cluster) -> None:
    assert "no Deployment in kube-system runs Cluster Autoscaler" in cluster.migrate().err
    assert "there is no Deployment kube-system/absent" in cluster.migrate("--name", "absent").err
    assert cluster.migrate("--apply", "--undo").code == 2


def test_named_groups_become_options_and_their_own_sizes_hold(cluster: Cluster) -> None:
    first = auto_scaling_group(cluster.world, "first", maximum=4)
    auto_scaling_group(cluster.world, "second")
    cluster.autoscaler([*COMMAND[:3], f"--nodes=1:9:{first}"], replicas=1)
    plan = cluster.migrate("--json").json
    assert plan["options"] == {"groups": "first"}
    ((note,),) = ([entry["note"] for entry in plan["groupFlags"]],)
    assert "which are 0 to 4" in note
    assert "1 to 9" in note


def test_groups_by_other_tags_are_named_and_untagged_ones_are_an_obstacle(cluster: Cluster) -> None:
    for name in ("first", "second"):
        auto_scaling_group(cluster.world, name)
    tag = {"ResourceType": "auto-scaling-group", "PropagateAtLaunch": False}
    client: Any = boto3.client("autoscaling")
    client.create_or_update_tags(Tags=[{**tag, "ResourceId": "first", "Key": "team", "Value": "a"}])
    client.create_or_update_tags(Tags=[{**tag, "ResourceId": "second", "Key": "team", "Value": "b"}])
    cluster.autoscaler([*COMMAND[:3], "--node-group-auto-discovery=asg:tag=team=a"], replicas=1)
    plan = cluster.migrate("--json")
    assert (plan.code, plan.json["options"], plan.json["groups"]) == (0, {"groups": "first"}, ["first"])
    client.delete_tags(Tags=[{**tag, "ResourceId": "first", "Key": f"{TAG}enabled", "Value": "true"}])
    refused = cluster.migrate("--apply")
    assert refused.code == 1
    assert "Tenon doesn't find first" in refused.err
    assert f"Key={TAG}enabled" in refused.err
    assert cluster.replicas == 1


def test_undo_refuses_while_tenon_could_not_see_cluster_autoscaler(cluster: Cluster) -> None:
    cluster.autoscaler([*COMMAND, "--leader-elect=false"])
    assert "never run both" in cluster.migrate("--apply").out
    refused = cluster.migrate("--undo")
    assert (refused.code, cluster.replicas) == (1, 0)
    assert "-c nodeGroups=off" in refused.err
    assert cluster.migrate("--undo", "--force").code == 0
    assert (cluster.replicas, cluster.config_map) == (2, None)
