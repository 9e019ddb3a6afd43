"""The instance types of Karpenter 1.14.1's reference, and what is known to be different since."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path

_FILE = Path(__file__).parent / "unit" / "instance_types" / "karpenter-instance-types.json.gz"
EXPECTED: dict[str, dict[str, dict[str, str]]] = json.loads(
    gzip.decompress(
        (Path(__file__).parent / "unit" / "instance_types" / "karpenter-instance-types.json.gz").read_bytes()
    )
)
"""Labels and allocatable by instance type."""
NOT_DESCRIBED = {"g4ad.xlarge", "g4ad.2xlarge", "g4ad.4xlarge", "g4ad.8xlarge", "g4ad.16xlarge"}
"""The local EC2's descriptions lack them."""
FEWER_INTERFACES = {"i7ie.48xlarge", "i7ie.metal-48xl", "i8ge.48xlarge", "i8ge.metal-48xl"}
"""EC2 now says that their interfaces are spread over two cards; the VPC CNI uses the first one only."""
_OTHER_TABLES = re.compile(r"(c9gd?|hpc7g|g7)\..*|[cmr]8(gb|gn|i|ib|idb|idn|in)\.metal-\d+xl|i4i\.large")
"""Types whose branch interfaces or bandwidth are others in Karpenter 1.15."""
_CHANGED_SINCE = {"vpc.amazonaws.com/pod-eni", "karpenter.k8s.aws/instance-network-bandwidth"}


def comparable(instance_type: str, values: dict[str, str]) -> dict[str, str]:
    """Labels or resources of a type, without those of which Karpenter 1.15 has other figures."""
    if not _OTHER_TABLES.fullmatch(instance_type):
        return values
    return {name: value for name, value in values.items() if name not in _CHANGED_SINCE}
