"""The EC2 model in bundles: Lambda's SDK may be older than what launches send and read.

``sdk/ec2-of-botocore-1.40.4.json.gz`` is the EC2 model of an SDK that Lambda's runtime had when Python 3.13 was new
there: three operations, reduced as bundles reduce it.
"""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import botocore
import pytest
from botocore.model import ServiceModel
from botocore.validate import ParamValidator

from infra import assembly, function_sizes
from infra.bundle import bundling, function_imports, service_models
from infra.cluster import permissions
from shared.api import labels
from shared.api.nodeclaim import NodeClaim
from shared.api.nodeclass import (
    BlockDevice,
    BlockDeviceMapping,
    EC2NodeClass,
    EC2NodeClassSpec,
    EC2NodeClassStatus,
    EnclaveOptions,
    ResolvedAMI,
    ResolvedCapacityReservation,
)
from shared.cluster.connect import ClusterInfo
from shared.instance_types.instance_type import (
    RESERVATION_ID,
    RESERVATION_INTERRUPTIBLE,
    RESERVATION_TYPE,
    InstanceType,
    Offering,
)
from shared.launch.fleet.overrides import FleetPlan, Override
from shared.launch.fleet.request import FleetRequest
from shared.launch.node_class.subnets import Subnet

SDK = Path(botocore.__file__).parent.parent
OLD_MODEL = Path(__file__).with_name("sdk") / "ec2-of-botocore-1.40.4.json.gz"
NETWORK_ACTIONS = set(permissions.join_network().actions)
"""What Lambda calls by a function's rights."""
OF_LAUNCHES = {"ec2:CreateTags", "ec2:RunInstances"}
"""What EC2 asks of whoever calls CreateFleet."""

PLAIN: dict[str, Any] = {}
SPECS: dict[str, dict[str, Any]] = {
    "no option": PLAIN,
    "CPU": {"cpu_options": {"coreCount": 2, "threadsPerCore": 1, "amdSevSnp": "enabled"}},
    "nested virtualization": {"cpu_options": {"nestedVirtualization": "enabled"}},
    "placement group": {"placement_group_selector": {"id": "pg-1"}},
    "network interfaces": {
        "network_interfaces": [
            {"networkCardIndex": 0, "deviceIndex": 0, "interfaceType": "interface"},
            {"networkCardIndex": 1, "deviceIndex": 1, "interfaceType": "efa-only"},
        ]
    },
    "public address": {"associate_public_ip_address": True},
    "connection tracking": {"connection_tracking": {"tcpEstablishedTimeout": 600, "udpTimeout": "1m"}},
    "enclaves": {"enclave_options": EnclaveOptions(enabled=True)},
    "IP prefixes": {"ip_prefix_count": 2},
    "volumes": {
        "block_device_mappings": [
            BlockDeviceMapping(
                device_name="/dev/xvda",
                ebs=BlockDevice(
                    volume_size="20Gi",
                    volume_type="gp3",
                    iops=3000,
                    throughput=125,
                    encrypted=True,
                    kms_key_id="alias/a",
                    snapshot_id="snap-1",
                    volume_initialization_rate=100,
                    delete_on_termination=True,
                ),
            )
        ]
    },
    "profile, tags, context and monitoring": {
        "instance_profile": "nodes",
        "tags": {"team": "a"},
        "context": "c",
        "detailed_monitoring": True,
    },
}
RESERVATIONS: dict[str, dict[str, Any]] = {
    "on-demand": {},
    "reserved": {"reservation_type": "default"},
    "capacity block": {"reservation_type": "capacity-block"},
    "interruptible reservation": {"interruptible": True},
}
MISSING_IN_OLD = {
    "NestedVirtualization": "CreateLaunchTemplate",
    "ReservedCapacityOptions": "CreateFleet",
}


def requests(spec: dict[str, Any], reservation: dict[str, Any], *, spot: bool, ipv6: bool) -> dict[str, dict[str, Any]]:
    """The parameters of CreateFleet and CreateLaunchTemplate for one NodeClaim, by operation."""
    offering_labels: dict[str, str] = {}
    reservations = []
    if reservation:
        resolved = ResolvedCapacityReservation(id="cr-1", instance_type="m5.large", **reservation)
        reservations = [resolved]
        offering_labels = {
            RESERVATION_ID: resolved.id,
            RESERVATION_TYPE: resolved.reservation_type,
            RESERVATION_INTERRUPTIBLE: str(resolved.interruptible).lower(),
        }
    capacity_type = labels.RESERVED if reservation else labels.SPOT if spot else labels.ON_DEMAND
    offering = Offering(
        zone="us-east-1a", capacity_type=capacity_type, price=0.1, list_price=0.2, labels=offering_labels
    )
    ami = ResolvedAMI(id="ami-1")
    override = Override(
        instance_type=InstanceType(name="m5.large", labels={}, capacity={}, overhead={}, offerings=(offering,)),
        offering=offering,
        subnet=Subnet(id="subnet-1", zone="us-east-1a", zone_id="use1-az1", free_addresses=100),
        ami=ami,
    )
    node_class = EC2NodeClass(
        spec=EC2NodeClassSpec(ami_family="AL2023", **spec),
        status=EC2NodeClassStatus(amis=[ami], capacity_reservations=reservations, instance_profile="nodes"),
    )
    service_cidr = "fd00::/108" if ipv6 else "10.100.0.0/16"
    cluster = ClusterInfo(
        name="demo",
        endpoint="https://cluster",
        certificate_authority="",
        version="1.36",
        service_cidr=service_cidr,
        region="us-east-1",
    )
    request = FleetRequest(group="g", cluster=cluster, node_class=node_class, claims=[NodeClaim()])
    plan = FleetPlan(capacity_type=capacity_type, overrides=(override,))
    templates = request.launch_templates(plan)
    (template,) = templates.values()
    return {
        "CreateFleet": request.parameters(plan, request.claims, templates, step="first"),
        "CreateLaunchTemplate": {"LaunchTemplateName": template.name, "LaunchTemplateData": template.data},
    }


def every_request() -> list[tuple[str, dict[str, Any]]]:
    """Each operation with its parameters, for every option with every kind of capacity, on IPv4 and IPv6."""
    sent = []
    for spec in SPECS.values():
        for reservation in RESERVATIONS.values():
            for spot in (False,) if reservation else (False, True):
                for ipv6 in (False, True):
                    sent += list(requests(spec, reservation, spot=spot, ipv6=ipv6).items())
    return sent


@cache
def modules(function: str) -> tuple[Path, ...]:
    return tuple(function_imports.first_party_modules(assembly.CHECKOUT, function).values())


@cache
def bundled(function: str) -> dict[str, bytes]:
    return service_models.files(SDK, modules(function))


def model_of(function: str) -> ServiceModel:
    (content,) = bundled(function).values()
    return ServiceModel(json.loads(content))


def refused(model: ServiceModel) -> dict[str, str]:
    """The parameters that the SDK with this model refuses to send, with their operations."""
    names = {}
    for operation, parameters in every_request():
        shape = model.operation_model(operation).input_shape
        assert shape is not None
        report = ParamValidator().validate(parameters, shape).generate_report()
        names.update({line.split('"')[1]: operation for line in report.splitlines()})
    return names


def test_an_old_sdk_refuses_what_launches_need() -> None:
    """Were it not so, the model in the bundle would be needless."""
    assert refused(ServiceModel(json.loads(gzip.decompress(OLD_MODEL.read_bytes())))) == MISSING_IN_OLD


@pytest.mark.parametrize("function", [function_sizes.PROVISIONER, function_sizes.DISRUPTION])
def test_every_launch_is_valid_by_the_model_in_the_bundle(function: str) -> None:
    assert refused(model_of(function)) == {}


def test_an_old_sdk_leaves_out_of_answers_what_decisions_read() -> None:
    def reservation(model: ServiceModel) -> set[str]:
        answer = model.operation_model("DescribeCapacityReservations").output_shape
        assert answer is not None
        return set(answer.members["CapacityReservations"].member.members)  # type: ignore[attr-defined]

    old = ServiceModel(json.loads(gzip.decompress(OLD_MODEL.read_bytes())))
    assert "Interruptible" in reservation(model_of(function_sizes.LIFECYCLE)) - reservation(old)


def test_the_model_has_every_ec2_operation_that_the_function_may_call(granted: dict[str, list[dict[str, Any]]]) -> None:
    """By the rights of the deployed roles: a method that the model lacks would not exist."""
    for function, statements in granted.items():
        actions = {action for statement in statements for action in statement["Action"]}
        actions -= NETWORK_ACTIONS | (OF_LAUNCHES if "ec2:CreateFleet" in actions else set())
        operations = {action.removeprefix("ec2:") for action in actions if action.startswith("ec2:")}
        known = set(model_of(function).operation_names) if bundled(function) else set()
        assert operations <= known, function


def test_functions_that_call_no_ec2_have_no_model() -> None:
    assert bundled(function_sizes.WEBHOOK) == {}
    assert bundled(function_sizes.RELAY) == {}


def test_the_sdk_finds_the_model_of_the_bundle_before_its_own(tmp_path: Path) -> None:
    """As Lambda starts a function: the bundle's folder is another here than /var/task."""
    (tmp_path / "checkout/functions").mkdir(parents=True)
    (tmp_path / "checkout/functions/__init__.py").write_text("")
    bundle = bundling._bundle(
        tmp_path / "out", tmp_path / "checkout", "one", tmp_path / "none", bundled(function_sizes.PROVISIONER)
    )
    program = """
import boto3
client = boto3.client("ec2", region_name="us-east-1", aws_access_key_id="a", aws_secret_access_key="b")
print(hasattr(client, "create_fleet"), hasattr(client, "run_instances"), client.can_paginate("describe_instances"))
"""
    folder = function_sizes.RUNTIME["AWS_DATA_PATH"].replace("/var/task", str(bundle))
    environ = {**os.environ, "AWS_DATA_PATH": folder}
    done = subprocess.run([sys.executable, "-c", program], env=environ, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "False", "True"]
