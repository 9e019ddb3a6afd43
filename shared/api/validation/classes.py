"""Problems of an EC2NodeClass: selector terms, image family, role, and the settings of an instance.

Whether the terms select anything is found when they are resolved against AWS; here is only what can be known without.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from shared.api.nodeclass import (
    ALIAS_FAMILIES,
    AMI_FAMILIES,
    INSTANCE_STORE_POLICIES,
    MATCH_CRITERIA,
    MAX_TERMS,
    METADATA_CHOICES,
)
from shared.api.validation import devices, kubelet, scalars
from shared.api.validation.scalars import quoted

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from shared.api.nodeclass import (
        AMISelectorTerm,
        CapacityReservationSelectorTerm,
        EC2NodeClass,
        EC2NodeClassSpec,
        MetadataOptions,
    )

_ALIAS = re.compile(r"(?P<family>[a-z0-9]+)@(?P<version>\S+)")
_ACCOUNT = re.compile(r"[0-9]{12}")
_MAX_TERM_TAGS = 20
_MAX_HOPS = 64


def problems(node_class: EC2NodeClass) -> Iterator[str]:
    """Every problem, in the order of the fields."""
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
            yield f"{at}.name: {quoted(group.name)} is not allowed beside tags; allowed is one of them"
    yield from _images(spec)
    yield from _reservations(spec.capacity_reservation_selector_terms)
    yield from _role(spec)
    yield from devices.tags("spec.tags", spec.tags)
    yield from devices.devices("spec.blockDeviceMappings", spec.block_device_mappings)
    if spec.kubelet is not None:
        yield from kubelet.problems("spec.kubelet", spec.kubelet)
    if spec.instance_store_policy:
        yield from scalars.choice("spec.instanceStorePolicy", spec.instance_store_policy, INSTANCE_STORE_POLICIES)
    yield from metadata_options("spec.metadataOptions", spec.metadata_options)


def _needed(path: str, count: int) -> Iterator[str]:
    if not count:
        yield f"{path}: is empty; at least one term is needed"
    yield from scalars.at_most(path, count, MAX_TERMS)


def _term(at: str, prefix: str, id_: str, tags: Mapping[str, str], others: Mapping[str, str]) -> Iterator[str]:
    """What all terms have in common: something is selected by, an id stands alone, tags are whole."""
    fields = ["tags", "id", *others]
    beside = [*(["tags"] if tags else []), *(name for name, value in others.items() if value)]
    if not id_ and not beside:
        yield f"{at}: selects nothing; one of {', '.join(fields)} is needed"
    if id_ and beside:
        yield f"{at}.id: {quoted(id_)} is not allowed beside {', '.join(beside)}; an id stands alone"
    if id_ and not re.fullmatch(rf"{prefix}[0-9a-z]+", id_):
        yield f"{at}.id: {quoted(id_)} is not allowed; allowed is an id such as {prefix}0123456789abcdef0"
    yield from scalars.at_most(f"{at}.tags", len(tags), _MAX_TERM_TAGS)
    for key, value in tags.items():
        if not key or not value:
            yield f'{at}.tags.{key}: "{key}={value}" is not allowed; a key and a value are needed (* for any value)'


def _images(spec: EC2NodeClassSpec) -> Iterator[str]:
    path = "spec.amiSelectorTerms"
    terms = spec.ami_selector_terms
    if spec.ami_family:
        yield from scalars.choice("spec.amiFamily", spec.ami_family, AMI_FAMILIES)
    if not terms:
        yield f"{path}: is empty; at least one term is needed, such as alias: al2023@latest"
    yield from scalars.at_most(path, len(terms), MAX_TERMS)
    for i, term in enumerate(terms):
        yield from _image(f"{path}[{i}]", term, spec.ami_family)
        if term.alias and len(terms) > 1:
            yield f"{path}[{i}].alias: {quoted(term.alias)} is not allowed beside other terms; an alias stands alone"
    if terms and not spec.ami_family and not any(term.alias for term in terms):
        yield f"spec.amiFamily: is missing; without an alias it is needed, one of {scalars.listed(AMI_FAMILIES)}"


def _image(at: str, term: AMISelectorTerm, family: str) -> Iterator[str]:
    others = {"name": term.name, "alias": term.alias, "ssmParameter": term.ssm_parameter}
    yield from _term(at, "ami-", term.id, term.tags, others)
    if term.owner and (term.id or term.alias or term.ssm_parameter):
        yield f"{at}.owner: {quoted(term.owner)} is not allowed here; it goes with tags or name"
    for name in ("alias", "ssmParameter"):
        beside = [other for other, value in others.items() if value and other != name]
        if others[name] and (term.tags or beside):
            named = ", ".join([*(["tags"] if term.tags else []), *beside])
            yield f"{at}.{name}: {quoted(others[name])} is not allowed beside {named}; it stands alone"
    if term.alias:
        yield from _alias(f"{at}.alias", term.alias, family)


def _alias(path: str, alias: str, family: str) -> Iterator[str]:
    found = _ALIAS.fullmatch(alias)
    if found is None or found["family"] not in ALIAS_FAMILIES:
        yield (
            f"{path}: {quoted(alias)} is not allowed; allowed is family@version (such as al2023@latest) of "
            f"{scalars.listed(tuple(ALIAS_FAMILIES))}"
        )
        return
    own = ALIAS_FAMILIES[found["family"]]
    if own.startswith("Windows") and found["version"] != "latest":
        yield f"{path}: {quoted(alias)} is not allowed; Windows has no versions to name, only @latest"
    if family and family not in {own, "Custom"}:
        yield f"spec.amiFamily: {quoted(family)} is not allowed with the alias {alias}; allowed are {own} and Custom"


def _reservations(terms: Sequence[CapacityReservationSelectorTerm]) -> Iterator[str]:
    path = "spec.capacityReservationSelectorTerms"
    yield from scalars.at_most(path, len(terms), MAX_TERMS)
    for i, term in enumerate(terms):
        at = f"{path}[{i}]"
        others = {"instanceMatchCriteria": term.instance_match_criteria}
        yield from _term(at, "cr-", term.id, term.tags, others)
        if term.owner_id and not _ACCOUNT.fullmatch(term.owner_id):
            yield f"{at}.ownerID: {quoted(term.owner_id)} is not allowed; allowed is an account's 12 digits"
        if term.owner_id and term.id:
            yield f"{at}.ownerID: {quoted(term.owner_id)} is not allowed beside id; an id stands alone"
        if term.instance_match_criteria:
            yield from scalars.choice(f"{at}.instanceMatchCriteria", term.instance_match_criteria, MATCH_CRITERIA)


def _role(spec: EC2NodeClassSpec) -> Iterator[str]:
    if spec.role and spec.instance_profile:
        yield (
            f"spec.role: {quoted(spec.role)} is not allowed beside spec.instanceProfile "
            f"{quoted(spec.instance_profile)}; allowed is one of them, or neither for Tenon's own"
        )
    if spec.role.startswith("arn:"):
        yield f"spec.role: {quoted(spec.role)} is not allowed; allowed is the role's name, not its ARN"


def metadata_options(path: str, options: MetadataOptions) -> Iterator[str]:
    """How the metadata service answers."""
    yield from scalars.choice(f"{path}.httpEndpoint", options.http_endpoint, METADATA_CHOICES["httpEndpoint"])
    yield from scalars.choice(
        f"{path}.httpProtocolIPv6", options.http_protocol_ipv6, METADATA_CHOICES["httpProtocolIPv6"]
    )
    yield from scalars.within(f"{path}.httpPutResponseHopLimit", options.http_put_response_hop_limit, 1, _MAX_HOPS)
    yield from scalars.choice(f"{path}.httpTokens", options.http_tokens, METADATA_CHOICES["httpTokens"])
