"""The account's commitments, with `-c commitments=on`: the catalog function reads them; NodePools say if it can't."""

from __future__ import annotations

import json
from collections import Counter
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import boto3
import pytest
from botocore.exceptions import ClientError

from local.kubernetes import kinds
from local.world import Options, World, sample_objects
from local.world.fleet_world import FleetWorld
from shared.commitments import store

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from local.aws.cloud import Cloud
    from local.aws.purchases import Purchases
    from local.kubernetes.objects import Obj
    from shared.commitments.commitment import Commitments

HOUR, MINUTE = timedelta(hours=1), timedelta(minutes=1)
ON = {"commitments": "on"}
ON_DEMAND = {"karpenter.sh/capacity-type": ["on-demand"], "karpenter.k8s.aws/instance-family": ["m6i"]}
RIGHTS = {
    "ec2:DescribeInstances",
    "ec2:DescribeReservedInstances",
    "savingsplans:DescribeSavingsPlanRates",
    "savingsplans:DescribeSavingsPlans",
}
POOL = ("karpenter.sh/v1", "NodePool")
NO_PERMISSION = "the catalog function has no permission for"


def buy(purchases: Purchases) -> None:
    purchases.reserve("m6i.large", 2)
    purchases.commit(0.5, family="m6i")
    purchases.commit(1.0)


def open_world(context: Mapping[str, str]) -> World:
    return World(options=Options(context=context, purchases=buy))


@pytest.fixture
def world() -> Iterator[World]:
    """A cluster whose account owns commitments that count."""
    with open_world(ON) as running:
        yield running


def run_pods(world: World, count: int) -> None:
    """Run pods on on-demand nodes of one family."""
    world.apply([sample_objects.node_class(world), sample_objects.node_pool(ON_DEMAND)])
    world.apply(sample_objects.deployment("web", count, {"cpu": "1500m"}))
    world.run_until(lambda: len(world.pods(phase="Running")) == count, limit=10 * MINUTE)


def stored(bucket: str) -> Commitments:
    body = boto3.client("s3").get_object(Bucket=bucket, Key=store.KEY)["Body"].read()
    return store.FORM.decode(body)


def bucket_of(world: World) -> str:
    return str(world.aws.deployed.function("catalog").environ["TENON_CATALOG_BUCKET"])


def is_stored(bucket: str) -> bool:
    try:
        boto3.client("s3").head_object(Bucket=bucket, Key=store.KEY)
    except ClientError:
        return False
    return True


def catalog_calls(aws: Cloud) -> Counter[str]:
    """The calls of the catalog function by IAM action."""
    return Counter(f"{call.service}:{call.operation}" for call in aws.calls.all if call.caller == "catalog")


def kinds_of(nodes: Iterable[Obj]) -> Counter[tuple[str, str]]:
    """How many nodes there are of each instance type and zone."""
    labels = [node["metadata"]["labels"] for node in nodes]
    return Counter((of["node.kubernetes.io/instance-type"], of["topology.kubernetes.io/zone"]) for of in labels)


def condition(world: World, type_: str) -> dict[str, Any] | None:
    pool = world.store.get(world.store.kind(*POOL), "default")
    return next((c for c in pool.get("status", {}).get("conditions", ()) if c["type"] == type_), None)


def status(world: World, type_: str) -> tuple[str, str]:
    """Status and message of a NodePool's condition, empty without it."""
    current = condition(world, type_) or {}
    return current.get("status", ""), current.get("message", "")


@pytest.mark.long
def test_the_catalog_function_reads_and_stores_them_each_hour(world: World) -> None:
    run_pods(world, 3)
    world.run_for(75 * MINUTE)
    commitments = stored(bucket_of(world))
    assert commitments.problem == ""
    assert [(r.instance_type, r.count, r.zone) for r in commitments.reserved] == [("m6i.large", 2, "")]
    assert [(p.kind, p.family, p.commitment) for p in commitments.plans] == [
        ("EC2Instance", "m6i", 0.5),
        ("Compute", "", 1.0),
    ]
    assert commitments.usage_of(world.cluster) == kinds_of(world.nodes())
    assert commitments.usage.keys() == {world.cluster}
    assert status(world, "CommitmentsReady") == ("True", "")
    calls = catalog_calls(world.aws)
    world.run_for(2 * HOUR)
    later = catalog_calls(world.aws)
    assert later["savingsplans:DescribeSavingsPlans"] == calls["savingsplans:DescribeSavingsPlans"] + 2
    assert later["savingsplans:DescribeSavingsPlanRates"] == calls["savingsplans:DescribeSavingsPlanRates"]


def test_a_new_deployment_does_not_wait_for_the_hour(world: World) -> None:
    run_pods(world, 1)
    world.run_until(lambda: is_stored(bucket_of(world)), limit=16 * MINUTE)


def test_every_granted_right_is_used(world: World) -> None:
    world.run_for(61 * MINUTE)
    granted = {
        action
        for statement in world.aws.enforcement.statements("catalog")
        if statement.sid in {"ReadReservedInstances", "ReadSavingsPlans"}
        for action in statement.actions
    }
    assert granted == RIGHTS
    assert catalog_calls(world.aws).keys() >= RIGHTS


@pytest.mark.parametrize(
    ("action", "message", "kept"),
    [
        (
            "savingsplans:DescribeSavingsPlans",
            f"Savings Plans aren't read: {NO_PERMISSION} savingsplans:DescribeSavingsPlans",
            (1, 0),
        ),
        (
            "ec2:DescribeReservedInstances",
            f"Reserved Instances aren't read: {NO_PERMISSION} ec2:DescribeReservedInstances",
            (0, 2),
        ),
        (
            "ec2:DescribeInstances",
            f"no commitment counts: running instances aren't read: {NO_PERMISSION} ec2:DescribeInstances",
            (0, 0),
        ),
    ],
)
def test_what_is_denied_is_a_condition_and_pods_get_nodes(
    action: str, message: str, kept: tuple[int, int], world: World
) -> None:
    world.aws.enforcement.deny("catalog", action)
    world.aws.functions.invoke("catalog", {"refresh": "commitments"})
    run_pods(world, 2)
    world.run_until(lambda: condition(world, "CommitmentsReady") is not None, limit=2 * MINUTE)
    assert status(world, "CommitmentsReady") == ("False", message)
    assert status(world, "Ready") == ("True", "")
    commitments = stored(bucket_of(world))
    assert (len(commitments.reserved), len(commitments.plans)) == kept
    assert world.failures() == []
    assert {denied.caller for denied in world.aws.enforcement.denied} == {"catalog"}
    world.expect_denials()


def test_without_the_option_nothing_is_read() -> None:
    with open_world({}) as world:
        run_pods(world, 1)
        world.run_for(75 * MINUTE)
        assert catalog_calls(world.aws).keys() & RIGHTS == set()
        assert not is_stored(bucket_of(world))
        assert condition(world, "CommitmentsReady") is None


def test_the_clusters_of_a_fleet_share_one_reading(load: Callable[[str], list[dict[str, Any]]]) -> None:
    with FleetWorld(fleet="prod", clusters=("blue", "green"), context=ON) as fleet:
        buy(fleet.aws.purchases)
        for name, member in fleet.clusters.items():
            objects = json.dumps(load("spot-default.yaml")).replace('"demo"', f'"{name}"')
            member.apply(json.loads(objects.replace('"spot"', '"on-demand"')))
            member.control_plane.store.patch(
                kinds.DEPLOYMENTS, "inflate", {"spec": {"replicas": 2}}, namespace="default"
            )
        fleet.run_for(61 * MINUTE)
        commitments = stored(fleet.aws.functions.named("catalog").environ["TENON_CATALOG_BUCKET"])
        assert commitments.usage.keys() == fleet.clusters.keys()
        for name, member in fleet.clusters.items():
            assert commitments.usage_of(name) == kinds_of(member.nodes())
            objects_of = member.control_plane.store
            (pool,) = objects_of.list(objects_of.kind("karpenter.sh/v1alpha5", "Provisioner"))
            assert {c["type"]: c["status"] for c in pool["status"]["conditions"]}["CommitmentsReady"] == "True"
        # With the first prices, and after an hour.
        assert fleet.aws.calls.count()["savingsplans", "DescribeSavingsPlans"] == 2
        assert fleet.denied_requests() == []
