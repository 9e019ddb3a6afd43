"""Launch templates: what CreateFleet boots, named by what is in them, so that equal launches share one.

A template is never changed. A class that changes gets another name, and the old template is collected later.
"""

from __future__ import annotations

import base64
import hashlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError

from shared import runtime
from shared.ami_family.families import GIB
from shared.api import labels
from shared.api.quantity import EPHEMERAL_STORAGE, parse_quantity
from shared.launch import launch_template_options
from shared.launch.node_class.selector_terms import code

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mypy_boto3_ec2 import EC2Client
    from mypy_boto3_ec2.type_defs import TagTypeDef

    from shared.ami_family.families import Family
    from shared.api.nodeclass import BlockDevice, BlockDeviceMapping, EC2NodeClass

_HASH_LENGTH = 16
_ALREADY_EXISTS = "InvalidLaunchTemplateName.AlreadyExistsException"
_LONGEST_TAG_KEY = 128
_OWN_TAGS = frozenset(
    {
        labels.NODEPOOL,
        labels.NODECLAIM_TAG,
        labels.NODECLASS,
        labels.CLUSTER_NAME_TAG,
        labels.LAUNCH_GROUP,
    }
)
_OWN_PREFIXES = ("kubernetes.io/cluster/",)


@dataclass(frozen=True, kw_only=True)
class Template:
    """A template's name and its data as EC2 takes it (RequestLaunchTemplateData)."""

    name: str
    data: Mapping[str, Any]


def template(
    node_class: EC2NodeClass,
    family: Family,
    *,
    cluster: str,
    image_id: str,
    user_data: str,
    tags: Mapping[str, str],
    spot: bool,
    reservation_id: str = "",
    fabric: int = 0,
) -> Template:
    """The template of a class with a resolved status.

    With a capacity reservation it launches in that one only; ``fabric`` is how many network cards get an Elastic
    Fabric Adapter, the first of them as the primary interface.

    Raises:
        QuantityError: the size of a volume is no quantity.
        OptionError: the class asks for what EC2 doesn't have.
    """
    spec, status = node_class.spec, node_class.status
    groups = [group.id for group in status.security_groups]
    metadata = spec.metadata_options
    tagged = ["instance", "volume", "network-interface", *(["spot-instances-request"] if spot else [])]
    data: dict[str, Any] = {
        "ImageId": image_id,
        "UserData": base64.b64encode(user_data.encode()).decode(),
        "BlockDeviceMappings": block_devices(family, spec.block_device_mappings),
        "Monitoring": {"Enabled": spec.detailed_monitoring},
        "MetadataOptions": {
            "HttpEndpoint": metadata.http_endpoint,
            "HttpProtocolIpv6": metadata.http_protocol_ipv6,
            "HttpPutResponseHopLimit": metadata.http_put_response_hop_limit,
            "HttpTokens": metadata.http_tokens,
        },
        "TagSpecifications": [{"ResourceType": resource, "Tags": tag_list(tags)} for resource in tagged],
        **launch_template_options.fields(spec),
    }
    if status.instance_profile:
        named = "Arn" if status.instance_profile.startswith("arn:") else "Name"
        data["IamInstanceProfile"] = {named: status.instance_profile}
    if interfaces := launch_template_options.interfaces(
        spec, groups, public=spec.associate_public_ip_address, fabric=fabric
    ):
        data["NetworkInterfaces"] = interfaces
    else:
        data["SecurityGroupIds"] = groups
    if reservation_id:
        data["CapacityReservationSpecification"] = {
            "CapacityReservationPreference": "capacity-reservations-only",
            "CapacityReservationTarget": {"CapacityReservationId": reservation_id},
        }
    elif spec.capacity_reservation_selector_terms:
        # What is launched on demand must not use up a reservation that another claim is planned for.
        data["CapacityReservationSpecification"] = {"CapacityReservationPreference": "none"}
    if not data["BlockDeviceMappings"]:
        del data["BlockDeviceMappings"]
    digest = hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()[:_HASH_LENGTH]
    return Template(name=f"tenon-{cluster}-{digest}", data=data)


def block_devices(family: Family, mappings: Sequence[BlockDeviceMapping]) -> list[dict[str, Any]]:
    """The class's volumes as EC2 takes them, or the family's default ones: gp3, encrypted, gone with the instance."""
    if mappings:
        return [{"DeviceName": m.device_name, **({"Ebs": _ebs(m.ebs)} if m.ebs is not None else {})} for m in mappings]
    return [
        {
            "DeviceName": volume.device,
            "Ebs": {"VolumeSize": volume.size_gib, "VolumeType": "gp3", "Encrypted": True, "DeleteOnTermination": True},
        }
        for volume in family.volumes
    ]


def _ebs(volume: BlockDevice) -> dict[str, Any]:
    size = None
    if volume.volume_size is not None:
        size = -(-parse_quantity(EPHEMERAL_STORAGE, volume.volume_size) // GIB)
    given = {
        "DeleteOnTermination": volume.delete_on_termination,
        "Encrypted": volume.encrypted,
        "Iops": volume.iops,
        "KmsKeyId": volume.kms_key_id or None,
        "SnapshotId": volume.snapshot_id or None,
        "Throughput": volume.throughput,
        "VolumeInitializationRate": volume.volume_initialization_rate,
        "VolumeSize": size,
        "VolumeType": volume.volume_type or None,
    }
    return {name: value for name, value in given.items() if value is not None}


def forbidden_tag(key: str) -> str | None:
    """Why a class may not set that tag, or None: AWS forbids it, or the cluster needs it for itself."""
    if key.lower().startswith("aws:"):
        return f'spec.tags: "{key}" begins with aws:, which AWS keeps for itself'
    if key in _OWN_TAGS or key.startswith(_OWN_PREFIXES):
        return f'spec.tags: "{key}" is set by Tenon, which finds its instances by it'
    if not key or len(key) > _LONGEST_TAG_KEY:
        return f'spec.tags: "{key[:_LONGEST_TAG_KEY]}" must have 1 to {_LONGEST_TAG_KEY} characters'
    return None


def tag_list(tags: Mapping[str, str]) -> list[TagTypeDef]:
    """Tags as EC2 takes them, in order of key."""
    return [{"Key": key, "Value": tags[key]} for key in sorted(tags)]


def ensure(ec2: EC2Client, wanted: Template, *, cluster: str) -> None:
    """Make the template unless this process knows that it is there; that it is there already is no error.

    Raises:
        ClientError: EC2 refused it.
    """
    known = _known()
    if wanted.name in known:
        return
    tags = {labels.CLUSTER_TAG.format(cluster=cluster): "owned", labels.CLUSTER_NAME_TAG: cluster}
    try:
        ec2.create_launch_template(
            LaunchTemplateName=wanted.name,
            LaunchTemplateData=wanted.data,  # type: ignore[arg-type]  # a plain mapping of the same keys
            TagSpecifications=[{"ResourceType": "launch-template", "Tags": tag_list(tags)}],
        )
    except ClientError as error:
        if code(error) != _ALREADY_EXISTS:
            raise
    known.add(wanted.name)


def forget(names: Sequence[str]) -> None:
    """Those templates are gone: make them again next time."""
    _known().difference_update(names)


def _known() -> set[str]:
    return runtime.current().cached("launch-templates", set[str])
