"""Problems of block devices and tags, which EC2NodeClasses and AWSNodeTemplates share.

The limits of volumes are EC2's (API reference, ``EbsBlockDevice``); finding them here costs a condition, finding them
at launch costs a failed CreateFleet for every pod.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared.api import labels
from shared.api.nodeclass import MAX_DEVICES, VOLUME_TYPES
from shared.api.quantity import MEMORY, QuantityError, parse_quantity
from shared.api.validation import scalars
from shared.api.validation.scalars import quoted

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from shared.api.nodeclass import BlockDevice, BlockDeviceMapping

_GIB = 2**30
_MAX_GIB = 65_536
_MIN_IOPS = 100
_THROUGHPUT = (125, 2_000)
_INITIALIZATION_RATE = (100, 300)
_WITH_IOPS = ("gp3", "io1", "io2")
_MAX_TAG_KEY = 128
_MAX_TAG_VALUE = 256

_RESERVED_TAGS = frozenset({labels.NODEPOOL, labels.NODECLAIM_TAG, labels.NODECLASS, labels.PROVISIONER_NAME})
_RESERVED_PREFIXES = ("kubernetes.io/cluster/", "karpenter.sh/managed-by", "eks:", "aws:", "tenon.sh/")


def devices(path: str, mappings: Sequence[BlockDeviceMapping]) -> Iterator[str]:
    """The volumes of an instance."""
    yield from scalars.at_most(path, len(mappings), MAX_DEVICES)
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
        yield from scalars.choice(f"{at}.volumeType", ebs.volume_type, VOLUME_TYPES)
    if ebs.volume_size is None and not ebs.snapshot_id:
        yield f"{at}.volumeSize: is missing; volumeSize or snapshotID is needed"
    if ebs.volume_size is not None:
        yield from _size(f"{at}.volumeSize", ebs.volume_size)
    yield from scalars.within(f"{at}.iops", ebs.iops, _MIN_IOPS)
    if ebs.iops is not None and kind not in _WITH_IOPS:
        yield f"{at}.iops: {ebs.iops} is not allowed for {kind}; allowed with {scalars.listed(_WITH_IOPS)}"
    yield from scalars.within(f"{at}.throughput", ebs.throughput, *_THROUGHPUT)
    if ebs.throughput is not None and kind != "gp3":
        yield f"{at}.throughput: {ebs.throughput} is not allowed for {kind}; allowed with gp3"
    yield from scalars.within(f"{at}.volumeInitializationRate", ebs.volume_initialization_rate, *_INITIALIZATION_RATE)
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
    """Tags of what is launched, but for those by which Tenon and EKS know their own."""
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
