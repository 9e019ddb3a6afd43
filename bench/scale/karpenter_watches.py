"""What Karpenter's watches receive under the same load: computed from sizes and rates, not measured.

Each of its two replicas fills its caches before leader election (controller-runtime, pkg/manager/internal.go), with all
pods, nodes and NodeClaims, without a field selector (Karpenter 1.15, pkg/operator/operator.go and the ``Watches`` and
``For`` of its controllers). It reads built-in kinds as protobuf (controller-runtime, pkg/client/apiutil) and custom
ones as JSON. Other kinds (NodePools, DaemonSets, CSINodes, VolumeAttachments) change too seldom to count, and what it
writes, gets or renews isn't counted either.
"""

from __future__ import annotations

import json

from bench.scale.invocations import REPLACED_AN_HOUR
from bench.stub_minutes import EVENTS_OF_A_REPLACEMENT, REPORT_MINUTES
from bench.stub_objects import claim
from shared.base.struct import Struct

REPLICAS = 2
"""The chart's default (karpenter-provider-aws 1.15, charts/karpenter/values.yaml)."""
POD_BYTES, NODE_BYTES = 4_239, 11_139
"""The stub's pod of 5,003 bytes of JSON and its node of 13,002 as protobuf: ``Marshal`` of k8s.io/api v0.37.2."""
_POD_EVENTS = EVENTS_OF_A_REPLACEMENT + 1
"""Without a selector of unfinished pods, a pod's removal comes after its final phase."""


class Received(Struct, kw_only=True):
    """By both replicas: events an hour, bytes an hour, and bytes of the lists that begin them."""

    events: float
    bytes_an_hour: float
    listed_bytes: float


def received(nodes: int, pods: int, *, busy: bool) -> Received:
    """What the watches receive of an idle cluster, or of one whose pods are replaced at the busy load's rate."""
    reports = nodes * 60 / REPORT_MINUTES
    pod_events = pods * REPLACED_AN_HOUR * _POD_EVENTS if busy else 0.0
    claim_bytes = len(json.dumps(claim(0)))
    return Received(
        events=REPLICAS * (reports + pod_events),
        bytes_an_hour=REPLICAS * (reports * NODE_BYTES + pod_events * POD_BYTES),
        listed_bytes=REPLICAS * (pods * POD_BYTES + nodes * (NODE_BYTES + claim_bytes)),
    )
