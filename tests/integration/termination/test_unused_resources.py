"""Launch templates and leases that nothing uses any more are deleted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from local.aws import backends
from shared.api import labels as names
from shared.base import aws, runtime
from shared.cluster.resources import LEASES

if TYPE_CHECKING:
    from tests.integration.termination.conftest import Environment


def templates(env: Environment) -> set[str]:
    with runtime.using(env.host):
        return {t["LaunchTemplateName"] for t in aws.ec2().describe_launch_templates()["LaunchTemplates"]}


def _tag_template(template: str) -> None:
    """As EC2 does: an instance is tagged with the launch template that it was launched from."""
    ec2 = backends.ec2("us-east-1")
    for instance in (i for r in ec2.reservations.values() for i in r.instances):
        ec2.create_tags([instance.id], {"aws:ec2launchtemplate:id": template})


def sweep_all(env: Environment, turns: int) -> None:
    for _ in range(turns):
        env.reconcile()
        env.turn(60)


def test_launch_templates_unused_for_an_hour_and_leases_without_node_are_deleted(env: Environment, turns: int) -> None:
    ours = [{"Key": names.CLUSTER_TAG.format(cluster="demo"), "Value": "owned"}]
    with runtime.using(env.host):
        template_ids = {}
        for name, tags in (("tenon-demo-used", ours), ("tenon-demo-unused", ours), ("theirs", [])):
            specs: Any = [{"ResourceType": "launch-template", "Tags": tags}] if tags else []
            template_ids[name] = aws.ec2().create_launch_template(
                LaunchTemplateName=name, LaunchTemplateData={"ImageId": "ami-1"}, TagSpecifications=specs
            )["LaunchTemplate"]["LaunchTemplateId"]
    env.turn(1800)
    env.a_node("used")
    _tag_template(template_ids["tenon-demo-used"])
    for lease, owner in (
        ("gone", []),
        ("used", []),
        ("owned", [{"apiVersion": "v1", "kind": "Node", "name": "x", "uid": "x"}]),
    ):
        env.client.create(
            LEASES.path(namespace="kube-node-lease"),
            {
                "apiVersion": "coordination.k8s.io/v1",
                "kind": "Lease",
                "metadata": {"name": lease, "namespace": "kube-node-lease", "ownerReferences": owner},
                "spec": {"renewTime": f"{env.now:%Y-%m-%dT%H:%M:%S.%fZ}"},
            },
        )
    assert templates(env) == {"tenon-demo-used", "tenon-demo-unused", "theirs"}
    env.reconcile()
    assert templates(env) == {"tenon-demo-used", "tenon-demo-unused", "theirs"}
    env.turn(3700 - 1800)
    env.restart()
    sweep_all(env, turns)
    assert templates(env) == {"tenon-demo-used", "theirs"}
    env.turn(3700)
    sweep_all(env, turns)
    assert templates(env) == {"theirs"}
    pages = env.client.list_pages(LEASES.path(namespace="kube-node-lease"))
    assert sorted(n for page in pages for n in ("gone", "used", "owned") if f'"name":"{n}"'.encode() in page) == [
        "owned",
        "used",
    ]
