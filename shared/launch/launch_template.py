"""Launch templates: what CreateFleet launches, named by a hash of their data, so that equal launches share one.

A template is never changed. A class that changes gets another template, and the unused one is deleted later. The
options of a class in EC2's own form (CPU, placement group, network interfaces, connection tracking) have the keys of
RequestLaunchTemplateData in camel case. Others are reported by field, because EC2's own error would be less precise.
"""

from __future__ import annotations

import base64
import hashlib
import json
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError

from shared.ami_family.families import GIB
from shared.api import labels
from shared.api.duration import DurationError, parse_duration
from shared.api.nodeclass import ENCLAVES
from shared.api.quantity import EPHEMERAL_STORAGE, parse_quantity
from shared.base.aws import error_code
from shared.base.struct import Struct

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from mypy_boto3_ec2 import EC2Client
    from mypy_boto3_ec2.type_defs import TagTypeDef

    from shared.ami_family.families import Family
    from shared.api.nodeclass import BlockDevice, BlockDeviceMapping, EC2NodeClass, EC2NodeClassSpec, MetadataOptions
    from shared.base.runtime import Runtime

_HASH_LENGTH = 16
_ALREADY_EXISTS = "InvalidLaunchTemplateName.AlreadyExistsException"
_MAX_TAG_KEY_LENGTH = 128
_REMEMBERED_FOR = timedelta(minutes=10)
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

_CPU_OPTIONS: dict[str, tuple[type, tuple[str, ...]]] = {
    "coreCount": (int, ()),
    "threadsPerCore": (int, ()),
    "amdSevSnp": (str, ("enabled", "disabled")),
    "nestedVirtualization": (str, ("enabled", "disabled")),
}
_PLACEMENT_GROUP: dict[str, tuple[type, tuple[str, ...]]] = {"name": (str, ()), "id": (str, ())}
_NETWORK_INTERFACE: dict[str, tuple[type, tuple[str, ...]]] = {
    "networkCardIndex": (int, ()),
    "deviceIndex": (int, ()),
    "interfaceType": (str, ("interface", "efa", "efa-only")),
}
_EFA_INTERFACE_TYPES = frozenset({"efa", "efa-only"})
_CONNECTION_TRACKING_TIMEOUTS = ("tcpEstablishedTimeout", "udpStreamTimeout", "udpTimeout")


class OptionError(ValueError):
    """A field of the class that EC2 would reject; the message names it and what is allowed."""


class LaunchTemplate(Struct, kw_only=True):
    """The name of a template and its RequestLaunchTemplateData."""

    name: str
    data: Mapping[str, Any]


def launch_template(
    node_class: EC2NodeClass,
    family: Family,
    *,
    cluster: str,
    ami_id: str,
    user_data: str,
    tags: Mapping[str, str],
    spot: bool,
    reservation_id: str = "",
    efa_count: int = 0,
    ipv6: bool = False,
) -> LaunchTemplate:
    """The launch template of a class with a resolved status.

    With a capacity reservation, instances are launched into that reservation only. ``efa_count`` network cards get an
    Elastic Fabric Adapter, the first of them as the primary interface. ``ipv6``: pods have IPv6 addresses.

    Raises:
        QuantityError: the size of a volume is not a quantity.
        OptionError: EC2 would reject an option of the class.
    """
    spec = node_class.spec
    tagged = ["instance", "volume", "network-interface", *(["spot-instances-request"] if spot else [])]
    data: dict[str, Any] = {
        "ImageId": ami_id,
        "UserData": base64.b64encode(user_data.encode()).decode(),
        "BlockDeviceMappings": block_devices(family, spec.block_device_mappings),
        "Monitoring": {"Enabled": spec.detailed_monitoring},
        "MetadataOptions": _metadata_options(spec.metadata_options),
        "TagSpecifications": [{"ResourceType": resource, "Tags": tag_list(tags)} for resource in tagged],
        **cpu_and_placement(spec),
        **_capacity_reservation(node_class, reservation_id),
        **_instance_profile(node_class.status.instance_profile),
        **_network(node_class, efa_count, ipv6=ipv6),
        **({"EnclaveOptions": {"Enabled": True}} if spec.enclave_options == ENCLAVES else {}),
    }
    if not data["BlockDeviceMappings"]:
        del data["BlockDeviceMappings"]
    digest = hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()[:_HASH_LENGTH]
    return LaunchTemplate(name=f"tenon-{cluster}-{digest}", data=data)


def _metadata_options(options: MetadataOptions) -> dict[str, Any]:
    return {
        "HttpEndpoint": options.http_endpoint,
        "HttpProtocolIpv6": options.http_protocol_ipv6,
        "HttpPutResponseHopLimit": options.http_put_response_hop_limit,
        "HttpTokens": options.http_tokens,
    }


def _instance_profile(profile: str) -> dict[str, Any]:
    if not profile:
        return {}
    return {"IamInstanceProfile": {"Arn" if profile.startswith("arn:") else "Name": profile}}


def _network(node_class: EC2NodeClass, efa_count: int, *, ipv6: bool) -> dict[str, Any]:
    spec, groups = node_class.spec, [group.id for group in node_class.status.security_groups]
    interfaces = network_interfaces(spec, groups, efa_count=efa_count, ipv6=ipv6)
    return {"NetworkInterfaces": interfaces} if interfaces else {"SecurityGroupIds": groups}


def _capacity_reservation(node_class: EC2NodeClass, reservation_id: str) -> dict[str, Any]:
    if reservation_id:
        target = {"CapacityReservationId": reservation_id}
        preference = "capacity-reservations-only"
        specification = {"CapacityReservationPreference": preference, "CapacityReservationTarget": target}
        reservations = {r.id: r for r in node_class.status.capacity_reservations}
        reservation_kind = reservations[reservation_id].reservation_kind if reservation_id in reservations else ""
        options: dict[str, Any] = (
            {"InstanceMarketOptions": {"MarketType": reservation_kind}} if reservation_kind else {}
        )
        return {"CapacityReservationSpecification": specification, **options}
    if node_class.spec.capacity_reservation_selector_terms:
        # On-demand instances must not use up a reservation that another NodeClaim is planned for.
        return {"CapacityReservationSpecification": {"CapacityReservationPreference": "none"}}
    return {}


def block_devices(family: Family, mappings: Sequence[BlockDeviceMapping]) -> list[dict[str, Any]]:
    """The class's volumes in EC2's form; by default the family's: gp3, encrypted, deleted with the instance."""
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
    fields = {
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
    return {name: value for name, value in fields.items() if value is not None}


def forbidden_tag(key: str) -> str | None:
    """Why a class can't set the tag, or None: AWS or Tenon reserves it, or its length is invalid."""
    if key.lower().startswith("aws:"):
        return f'spec.tags: "{key}" begins with aws:, which AWS reserves'
    if key in _OWN_TAGS or key.startswith(_OWN_PREFIXES):
        return f'spec.tags: "{key}" is set by Tenon, which finds its instances by it'
    if not key or len(key) > _MAX_TAG_KEY_LENGTH:
        return f'spec.tags: "{key[:_MAX_TAG_KEY_LENGTH]}" must have 1 to {_MAX_TAG_KEY_LENGTH} characters'
    return None


def tag_list(tags: Mapping[str, str]) -> list[TagTypeDef]:
    """Tags in EC2's form, in order of key."""
    return [{"Key": key, "Value": tags[key]} for key in sorted(tags)]


def ensure(ec2: EC2Client, runtime: Runtime, template: LaunchTemplate, *, cluster: str) -> None:
    """Create the template if it doesn't exist; a warm process (``runtime``) remembers for ten minutes which do.

    An hour after its last launch a template is deleted, by another function.

    Raises:
        ClientError: EC2 rejected it.
    """
    existing, now = _existing(runtime), runtime.now()
    if template.name in existing and now - existing[template.name] < _REMEMBERED_FOR:
        return
    forget(runtime, [name for name, seen in dict(existing).items() if now - seen >= _REMEMBERED_FOR])
    tags = {labels.CLUSTER_TAG.format(cluster=cluster): "owned", labels.CLUSTER_NAME_TAG: cluster}
    try:
        ec2.create_launch_template(
            LaunchTemplateName=template.name,
            LaunchTemplateData=template.data,  # type: ignore[arg-type]  # a plain mapping of the same keys
            TagSpecifications=[{"ResourceType": "launch-template", "Tags": tag_list(tags)}],
        )
    except ClientError as error:
        if error_code(error) != _ALREADY_EXISTS:
            raise
    existing[template.name] = now


def forget(runtime: Runtime, names: Sequence[str]) -> None:
    """The templates were deleted: :func:`ensure` creates them again."""
    existing = _existing(runtime)
    for name in names:
        existing.pop(name, None)


def _existing(runtime: Runtime) -> dict[str, datetime]:
    """By name: when the template was seen last."""
    return runtime.cached("launch-templates", dict)


def cpu_and_placement(spec: EC2NodeClassSpec) -> dict[str, Any]:
    """CpuOptions and Placement, where the class has them.

    Raises:
        OptionError: a key or value that EC2 doesn't have.
    """
    options: dict[str, Any] = {}
    if spec.cpu_options:
        options["CpuOptions"] = _checked(spec.cpu_options, _CPU_OPTIONS, "spec.cpuOptions")
    if spec.placement_group_selector:
        group = _checked(spec.placement_group_selector, _PLACEMENT_GROUP, "spec.placementGroupSelector")
        if len(group) != 1:
            raise OptionError("spec.placementGroupSelector takes either name or id")
        options["Placement"] = {f"Group{key}": value for key, value in group.items()}
    return options


def network_interfaces(
    spec: EC2NodeClassSpec, groups: Sequence[str], *, efa_count: int, ipv6: bool = False
) -> list[dict[str, Any]]:
    """The network interfaces of the template; empty if EC2's default interface is enough.

    The class's own interfaces take precedence over ``efa_count`` Elastic Fabric Adapters, one a network card. EC2 gives
    no public address to an instance with several interfaces, and no IP prefixes to an interface without addresses.
    With ``ipv6``, each interface with addresses has an IPv6 address too, by which the node registers (Karpenter 1.15,
    pkg/providers/launchtemplate/launchtemplate.go, generateNetworkInterfaces): subnets need not assign them.

    Raises:
        OptionError: a key or value that EC2 doesn't have.
    """
    interfaces: list[dict[str, Any]] = [
        {
            "NetworkCardIndex": 0,
            "DeviceIndex": i,
            **_checked(interface, _NETWORK_INTERFACE, f"spec.networkInterfaces[{i}]"),
        }
        for i, interface in enumerate(spec.network_interfaces)
    ]
    if interfaces:
        _check_together(interfaces)
    else:
        interfaces = [
            {"NetworkCardIndex": i, "DeviceIndex": int(i > 0), "InterfaceType": "efa"} for i in range(efa_count)
        ]
    public, timeouts = spec.associate_public_ip_address, _connection_tracking(spec.connection_tracking)
    if not interfaces and (public is not None or timeouts or spec.ip_prefix_count or ipv6):
        interfaces = [{"DeviceIndex": 0}]
    if len(interfaces) == 1 and public is not None:
        interfaces[0]["AssociatePublicIpAddress"] = public
    tracking = {"ConnectionTrackingSpecification": timeouts} if timeouts else {}
    return [
        {**interface, "Groups": list(groups), **_addresses(spec, interface, ipv6=ipv6), **tracking}
        for interface in interfaces
    ]


def _addresses(spec: EC2NodeClassSpec, interface: Mapping[str, Any], *, ipv6: bool) -> dict[str, int | bool]:
    """The IPv6 address and the IP prefixes of an interface."""
    if interface.get("InterfaceType") == "efa-only":
        return {}
    address: dict[str, int | bool] = {"PrimaryIpv6": True, "Ipv6AddressCount": 1} if ipv6 else {}
    if not spec.ip_prefix_count:
        return address
    return {**address, "Ipv6PrefixCount" if ipv6 else "Ipv4PrefixCount": spec.ip_prefix_count}


def _check_together(interfaces: Sequence[Mapping[str, Any]]) -> None:
    """Check what EC2 requires of several interfaces together (RunInstances, and Karpenter's EC2NodeClass)."""
    positions: set[tuple[int, int]] = set()
    efa_cards: set[int] = set()
    for i, interface in enumerate(interfaces):
        card, device = interface["NetworkCardIndex"], interface["DeviceIndex"]
        interface_type = interface.get("InterfaceType", "interface")
        field = f"spec.networkInterfaces[{i}]"
        if card < 0 or device < 0:
            raise OptionError(f"{field}: networkCardIndex and deviceIndex must not be negative")
        if (card, device) in positions:
            raise OptionError(f"{field}: networkCardIndex {card} with deviceIndex {device} is used twice")
        if (card, device) == (0, 0) and interface_type == "efa-only":
            raise OptionError(f'{field}.interfaceType is "efa-only", but the primary interface needs an address')
        if interface_type in _EFA_INTERFACE_TYPES and card in efa_cards:
            raise OptionError(f"{field}.interfaceType: network card {card} has an Elastic Fabric Adapter already")
        positions.add((card, device))
        if interface_type in _EFA_INTERFACE_TYPES:
            efa_cards.add(card)
    if (0, 0) not in positions:
        raise OptionError("spec.networkInterfaces has none with networkCardIndex 0 and deviceIndex 0, the primary one")


def _connection_tracking(spec: Mapping[str, Any] | None) -> dict[str, int]:
    """Timeouts in seconds; the class may also write them as durations (1h)."""
    timeouts = {}
    for key, value in (spec or {}).items():
        field = f"spec.connectionTracking.{key}"
        if key not in _CONNECTION_TRACKING_TIMEOUTS:
            raise OptionError(f"{field} is unknown; known are {', '.join(_CONNECTION_TRACKING_TIMEOUTS)}")
        try:
            timeout = timedelta(seconds=value) if isinstance(value, int) else parse_duration(str(value))
        except DurationError as error:
            raise OptionError(f"{field}: {error}") from error
        if timeout is None:
            raise OptionError(f"{field}: it must be finite")
        timeouts[_pascal_case(key)] = int(timeout.total_seconds())
    return timeouts


def _checked(
    options: Mapping[str, Any], known: Mapping[str, tuple[type, tuple[str, ...]]], field: str
) -> dict[str, Any]:
    """The options under EC2's keys; ``known`` has the type and the allowed values (empty: any) of each key."""
    for key, value in options.items():
        if key not in known:
            raise OptionError(f"{field}.{key} is unknown; known are {', '.join(known)}")
        value_type, choices = known[key]
        if type(value) is not value_type or (choices and value not in choices):
            allowed = f"one of {', '.join(choices)}" if choices else {int: "an integer", str: "a string"}[value_type]
            raise OptionError(f'{field}.{key} is "{value}", and must be {allowed}')
    return {_pascal_case(key): value for key, value in options.items()}


def _pascal_case(key: str) -> str:
    return key[0].upper() + key[1:]
