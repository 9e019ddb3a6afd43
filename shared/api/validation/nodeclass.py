"""Validation of an EC2NodeClass: selector terms, AMI family, role, tags, block devices and metadata settings.

Fields that Tenon doesn't know are invalid, too.
What the terms select is known only when they are resolved on AWS. The limits of volumes are EC2's (API reference,
``EbsBlockDevice``): an error here is a condition, an error at launch is a failed CreateFleet for every pod.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from msgspec import inspect

from shared.api import labels
from shared.api.nodeclass import (
    ALIAS_FAMILIES,
    AMI_FAMILIES,
    INSTANCE_STORE_POLICIES,
    MATCH_CRITERIA,
    MAX_DEVICES,
    MAX_TERMS,
    METADATA_CHOICES,
    VOLUME_TYPES,
)
from shared.api.quantity import MEMORY, QuantityError, parse_quantity
from shared.api.validation import fields, kubelet
from shared.api.validation.fields import quoted

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from shared.api.nodeclass import (
        AMISelectorTerm,
        BlockDevice,
        BlockDeviceMapping,
        CapacityReservationSelectorTerm,
        EC2NodeClass,
        EC2NodeClassSpec,
        MetadataOptions,
    )

_ALIAS = re.compile(r"(?P<family>[a-z0-9]+)@(?P<version>\S+)")
_ACCOUNT = re.compile(r"[0-9]{12}")
_MAX_TERM_TAGS = 20
_MAX_HOP_LIMIT = 64
_GIB = 2**30
_MAX_GIB = 65_536
_MIN_IOPS = 100
_THROUGHPUT = (125, 2_000)
_INITIALIZATION_RATE = (100, 300)
_WITH_IOPS = ("gp3", "io1", "io2")
_MAX_TAG_KEY = 128
_MAX_TAG_VALUE = 256

_RESERVED_TAGS = frozenset({labels.NODEPOOL, labels.NODECLAIM_TAG, labels.NODECLASS, labels.PROVISIONER_NAME})
_RESERVED_PREFIXES = ("kubernetes.io/cluster/", "karpenter.sh/managed-by", "eks:", "aws:", labels.OWN_PREFIX)
_NO_VALUE: tuple[object, ...] = (None, False, 0, "", [], {})
"""Values of an unknown field that ask for nothing."""


def validate_node_class(node_class: EC2NodeClass) -> Iterator[str]:
    """The problems of a karpenter.k8s.aws/v1 EC2NodeClass, in the order of its fields."""
    spec = node_class.spec
    if not node_class.name:
        yield "metadata.name: is missing"
    yield from _needed("spec.subnetSelectorTerms", len(spec.subnet_selector_terms))
    for i, subnet in enumerate(spec.subnet_selector_terms):
        yield from _term(f"spec.subnetSelectorTerms[{i}]", "subnet-", subnet.id, subnet.tags, {})
    yield from _needed("spec.securityGroupSelectorTerms", len(spec.security_group_selector_terms))
    for i, group in enumerate(spec.security_group_selector_terms):
        at = f"spec.securityGroupSelectorTerms[{i}]"
        yield from _term(at, "sg-", group.id, group.tags, {"name": group.name})
        if group.name and group.tags:
            yield f"{at}.name: {quoted(group.name)} is not allowed together with tags; allowed is one of them"
    yield from fields.within("spec.ipPrefixCount", spec.ip_prefix_count, 0)
    yield from _images(spec)
    yield from _reservations(spec.capacity_reservation_selector_terms)
    yield from _role(spec)
    yield from tags("spec.tags", spec.tags)
    yield from block_devices("spec.blockDeviceMappings", spec.block_device_mappings)
    if spec.kubelet is not None:
        yield from kubelet.settings("spec.kubelet", spec.kubelet)
    if spec.instance_store_policy:
        yield from fields.choice("spec.instanceStorePolicy", spec.instance_store_policy, INSTANCE_STORE_POLICIES)
    yield from metadata_options("spec.metadataOptions", spec.metadata_options)


def _needed(path: str, count: int) -> Iterator[str]:
    if not count:
        yield f"{path}: is empty; at least one term is needed"
    yield from fields.at_most(path, count, MAX_TERMS)


def _term(at: str, prefix: str, id_: str, tags: Mapping[str, str], further_fields: Mapping[str, str]) -> Iterator[str]:
    """What applies to all terms: they select by something, an id excludes other fields, tags have keys and values."""
    selectors = ["tags", "id", *further_fields]
    also_set = [*(["tags"] if tags else []), *(name for name, value in further_fields.items() if value)]
    if not id_ and not also_set:
        yield f"{at}: selects nothing; one of {', '.join(selectors)} is needed"
    if id_ and also_set:
        yield f"{at}.id: {quoted(id_)} is not allowed together with {', '.join(also_set)}; an id stands alone"
    if id_ and not re.fullmatch(rf"{prefix}[0-9a-z]+", id_):
        yield f"{at}.id: {quoted(id_)} is not allowed; allowed is an id such as {prefix}0123456789abcdef0"
    yield from fields.at_most(f"{at}.tags", len(tags), _MAX_TERM_TAGS)
    for key, value in tags.items():
        if not key or not value:
            yield f'{at}.tags.{key}: "{key}={value}" is not allowed; a key and a value are needed (* for any value)'


def _images(spec: EC2NodeClassSpec) -> Iterator[str]:
    path = "spec.amiSelectorTerms"
    terms = spec.ami_selector_terms
    if spec.ami_family:
        yield from fields.choice("spec.amiFamily", spec.ami_family, AMI_FAMILIES)
    if not terms:
        yield f"{path}: is empty; at least one term is needed, such as alias: al2023@latest"
    yield from fields.at_most(path, len(terms), MAX_TERMS)
    for i, term in enumerate(terms):
        yield from _image(f"{path}[{i}]", term, spec.ami_family)
        if term.alias and len(terms) > 1:
            alias = quoted(term.alias)
            yield f"{path}[{i}].alias: {alias} is not allowed together with other terms; an alias stands alone"
    if terms and not spec.ami_family and not any(term.alias for term in terms):
        yield f"spec.amiFamily: is missing; without an alias it is needed, one of {fields.listed(AMI_FAMILIES)}"


def _image(at: str, term: AMISelectorTerm, family: str) -> Iterator[str]:
    further_fields = {"name": term.name, "alias": term.alias, "ssmParameter": term.ssm_parameter}
    yield from _term(at, "ami-", term.id, term.tags, further_fields)
    if term.owner and (term.id or term.alias or term.ssm_parameter):
        yield f"{at}.owner: {quoted(term.owner)} is not allowed here; it goes with tags or name"
    for name in ("alias", "ssmParameter"):
        also_set = [field for field, value in further_fields.items() if value and field != name]
        if further_fields[name] and (term.tags or also_set):
            named = ", ".join([*(["tags"] if term.tags else []), *also_set])
            yield f"{at}.{name}: {quoted(further_fields[name])} is not allowed together with {named}; it stands alone"
    if term.alias:
        yield from _alias(f"{at}.alias", term.alias, family)


def _alias(path: str, alias: str, family: str) -> Iterator[str]:
    match = _ALIAS.fullmatch(alias)
    if match is None or match["family"] not in ALIAS_FAMILIES:
        yield (
            f"{path}: {quoted(alias)} is not allowed; allowed is family@version (such as al2023@latest) of "
            f"{fields.listed(tuple(ALIAS_FAMILIES))}"
        )
        return
    family_of_alias = ALIAS_FAMILIES[match["family"]]
    if family_of_alias.startswith("Windows") and match["version"] != "latest":
        yield f"{path}: {quoted(alias)} is not allowed; Windows has no versions to name, only @latest"
    if family and family not in {family_of_alias, "Custom"}:
        allowed = f"allowed are {family_of_alias} and Custom"
        yield f"spec.amiFamily: {quoted(family)} is not allowed with the alias {alias}; {allowed}"


def _reservations(terms: Sequence[CapacityReservationSelectorTerm]) -> Iterator[str]:
    path = "spec.capacityReservationSelectorTerms"
    yield from fields.at_most(path, len(terms), MAX_TERMS)
    for i, term in enumerate(terms):
        at = f"{path}[{i}]"
        further_fields = {"instanceMatchCriteria": term.instance_match_criteria}
        yield from _term(at, "cr-", term.id, term.tags, further_fields)
        if term.owner_id and not _ACCOUNT.fullmatch(term.owner_id):
            yield f"{at}.ownerID: {quoted(term.owner_id)} is not allowed; allowed is an account's 12 digits"
        if term.owner_id and term.id:
            yield f"{at}.ownerID: {quoted(term.owner_id)} is not allowed together with id; an id stands alone"
        if term.instance_match_criteria:
            yield from fields.choice(f"{at}.instanceMatchCriteria", term.instance_match_criteria, MATCH_CRITERIA)


def _role(spec: EC2NodeClassSpec) -> Iterator[str]:
    if spec.role and spec.instance_profile:
        yield (
            f"spec.role: {quoted(spec.role)} is not allowed together with spec.instanceProfile "
            f"{quoted(spec.instance_profile)}; allowed is one of them, or neither for Tenon's own"
        )
    if spec.role.startswith("arn:"):
        yield f"spec.role: {quoted(spec.role)} is not allowed; allowed is the role's name, not its ARN"


def metadata_options(path: str, options: MetadataOptions) -> Iterator[str]:
    """Options of the instance metadata service."""
    yield from fields.choice(f"{path}.httpEndpoint", options.http_endpoint, METADATA_CHOICES["httpEndpoint"])
    yield from fields.choice(
        f"{path}.httpProtocolIPv6", options.http_protocol_ipv6, METADATA_CHOICES["httpProtocolIPv6"]
    )
    yield from fields.within(f"{path}.httpPutResponseHopLimit", options.http_put_response_hop_limit, 1, _MAX_HOP_LIMIT)
    yield from fields.choice(f"{path}.httpTokens", options.http_tokens, METADATA_CHOICES["httpTokens"])


def block_devices(path: str, mappings: Sequence[BlockDeviceMapping]) -> Iterator[str]:
    """The volumes of an instance."""
    yield from fields.at_most(path, len(mappings), MAX_DEVICES)
    roots = [i for i, mapping in enumerate(mappings) if mapping.root_volume]
    if len(roots) > 1:
        yield f"{path}[{roots[1]}].rootVolume: true is there already at {path}[{roots[0]}]; allowed is one root volume"
    seen: dict[str, int] = {}
    for i, mapping in enumerate(mappings):
        at = f"{path}[{i}]"
        first = seen.setdefault(mapping.device_name, i)
        if not mapping.device_name:
            yield f"{at}.deviceName: is empty; a name such as /dev/xvda is needed"
        elif first != i:
            yield f"{at}.deviceName: {quoted(mapping.device_name)} is there already at {path}[{first}]"
        if mapping.ebs is not None:
            yield from _volume(f"{at}.ebs", mapping.ebs)


def _volume(at: str, ebs: BlockDevice) -> Iterator[str]:
    kind = ebs.volume_type or "gp3"
    if ebs.volume_type:
        yield from fields.choice(f"{at}.volumeType", ebs.volume_type, VOLUME_TYPES)
    if ebs.volume_size is None and not ebs.snapshot_id:
        yield f"{at}.volumeSize: is missing; volumeSize or snapshotID is needed"
    if ebs.volume_size is not None:
        yield from _size(f"{at}.volumeSize", ebs.volume_size)
    yield from fields.within(f"{at}.iops", ebs.iops, _MIN_IOPS)
    if ebs.iops is not None and kind not in _WITH_IOPS:
        yield f"{at}.iops: {ebs.iops} is not allowed for {kind}; allowed with {fields.listed(_WITH_IOPS)}"
    yield from fields.within(f"{at}.throughput", ebs.throughput, *_THROUGHPUT)
    if ebs.throughput is not None and kind != "gp3":
        yield f"{at}.throughput: {ebs.throughput} is not allowed for {kind}; allowed with gp3"
    yield from fields.within(f"{at}.volumeInitializationRate", ebs.volume_initialization_rate, *_INITIALIZATION_RATE)
    if ebs.volume_initialization_rate is not None and not ebs.snapshot_id:
        yield f"{at}.volumeInitializationRate: {ebs.volume_initialization_rate} needs a snapshotID"
    if ebs.kms_key_id and ebs.encrypted is False:
        yield f"{at}.encrypted: false is not allowed with a kmsKeyID; allowed is true"


def _size(path: str, given: str | float) -> Iterator[str]:
    try:
        size = parse_quantity(MEMORY, given)
    except QuantityError as error:
        yield f"{path}: {error}"
        return
    if not _GIB <= size <= _MAX_GIB * _GIB:
        yield f"{path}: {quoted(given)} is not allowed; allowed is 1Gi to 64Ti"


def tags(path: str, given: Mapping[str, str]) -> Iterator[str]:
    """Tags of launched resources; those that Tenon, EKS and AWS set are reserved."""
    for key, value in given.items():
        if not 1 <= len(key) <= _MAX_TAG_KEY:
            yield f"{path}.{key}: {quoted(key)} is not allowed; allowed are keys of 1 to {_MAX_TAG_KEY} characters"
        elif key in _RESERVED_TAGS or key.startswith(_RESERVED_PREFIXES):
            yield (
                f"{path}.{key}: {quoted(key)} is set by Tenon, EKS or AWS; allowed are tags other than "
                f"{', '.join(sorted(_RESERVED_TAGS))} and those that begin with {', '.join(_RESERVED_PREFIXES)}"
            )
        if len(value) > _MAX_TAG_VALUE:
            yield f"{path}.{key}: has {len(value)} characters; allowed are at most {_MAX_TAG_VALUE}"


# --- fields that Tenon doesn't know ---


def unknown_fields(value: Mapping[str, Any], kind: type, path: str) -> Iterator[str]:
    """A problem for each field below ``path`` that the struct of the whole object doesn't have.

    Such fields are of a newer Karpenter, whose definitions may be installed. A node that is launched without what one
    asks for would be another one than the user wrote. A value that means the same as none (false, 0, empty) is no
    obstacle. Pools may have unknown fields: manifests still have those of old versions, which the API server drops.
    """
    yield from _unknown(value.get(path), _fields(kind)[path], path)


def _unknown(value: object, kind: inspect.Type, path: str) -> Iterator[str]:
    match kind:
        case inspect.Metadata(type=inner):
            yield from _unknown(value, inner, path)
        case inspect.UnionType(types=types):
            for each in types:
                yield from _unknown(value, each, path)
        case inspect.ListType(item_type=item) if isinstance(value, list):
            for i, each in enumerate(value):
                yield from _unknown(each, item, f"{path}[{i}]")
        case inspect.StructType(cls=cls) if isinstance(value, dict):
            yield from _unknown_of_struct(value, _fields(cls), path)


def _unknown_of_struct(value: Mapping[str, object], known: Mapping[str, inspect.Type], path: str) -> Iterator[str]:
    for name, inner in value.items():
        if name in known:
            yield from _unknown(inner, known[name], f"{path}.{name}")
        elif not _is_nothing(inner):
            yield f"{path}.{name}: this field is not supported; nodes would be launched without it"


def _is_nothing(value: object) -> bool:
    if isinstance(value, dict):
        return all(_is_nothing(inner) for inner in value.values())
    return value in _NO_VALUE


@lru_cache(maxsize=256)
def _fields(cls: type) -> dict[str, inspect.Type]:
    """The types of a struct's fields by their names in JSON."""
    info = inspect.type_info(cls)
    if not isinstance(info, inspect.StructType):
        raise TypeError(f"{cls} is not a struct")
    return {field.encode_name: field.type for field in info.fields}
