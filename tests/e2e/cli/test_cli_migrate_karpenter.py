"""`tenon migrate karpenter --json` of a live cluster with Karpenter's objects: it lists them, and changes nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.integration.cli.test_cli_migrate_karpenter import karpenter, node_class, node_pool

if TYPE_CHECKING:
    from local.world import World
    from tests.e2e.cli.conftest import Shell


def versions(world: World) -> dict[tuple[str, str, str], str]:
    """The resourceVersion of every object."""
    return {
        (kind.kind, obj["metadata"].get("namespace", ""), obj["metadata"]["name"]): obj["metadata"]["resourceVersion"]
        for kind in world.store.served()
        for obj in world.store.list(kind)
    }


def test_the_objects_of_a_cluster_are_listed_and_left_as_they_are(shell: Shell) -> None:
    world = shell.world
    deployment: dict[str, Any] = karpenter("--feature-gates=NodeRepair=true")
    labels = {"app.kubernetes.io/name": "karpenter"}
    template = deployment["spec"]["template"]
    template["metadata"] = {"labels": labels}
    template["spec"]["containers"][0]["image"] = "public.ecr.aws/karpenter/controller:1.15.0"
    deployment["spec"] |= {"selector": {"matchLabels": labels}, "replicas": 0}
    world.apply([node_class(role="KarpenterNodeRole-demo"), node_pool(template={"expireAfter": "720h"}), deployment])
    before = versions(world)
    done = shell.tenon("migrate", "karpenter", "--json")
    assert (done.code, done.err) == (0, "")
    printed = done.json
    assert printed["refused"] == 0
    listed = {(each["kind"], each["namespace"], each["name"]): each["differences"] for each in printed["objects"]}
    assert set(listed) == {
        ("NodePool", "", "default"),
        ("EC2NodeClass", "", "default"),
        ("Deployment", "kube-system", "karpenter"),
    }
    assert any("expireAfter 720h" in line for line in listed["NodePool", "", "default"])
    assert any("-c nodeRoles=KarpenterNodeRole-demo" in line for line in listed["EC2NodeClass", "", "default"])
    assert any("gate NodeRepair=true" in line for line in listed["Deployment", "kube-system", "karpenter"])
    assert versions(world) == before
