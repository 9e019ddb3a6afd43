"""The record between two runs of shadow mode: the virtual fleet, where its pods are, and the days so far.

One object, written once a run: a run that dies before that leaves the record as it was, and the next one counts the
same time.
"""

from __future__ import annotations

from datetime import datetime

import msgspec

from shared.api.nodeclaim import NodeClaim
from shared.api.nodepool import NodePool
from shared.base.blobs import BlobForm
from shared.base.struct import WireStruct
from shared.shadow.ledger import Day, Offering


class VirtualNode(WireStruct, kw_only=True):
    """A node of Tenon's virtual fleet, as its NodeClaim; the node has the same labels, taints and resources.

    Its time is counted up to ``counted``. ``ends``: it was removed, and its instance ends then.
    """

    claim: NodeClaim
    counted: datetime
    ends: datetime | None = None

    @property
    def name(self) -> str:
        """The node's name."""
        return self.claim.status.node_name


class Binding(WireStruct, array_like=True):
    """The node of a pod in the virtual cluster, since when, and whether its wait for a real node was counted."""

    node: str
    since: datetime
    is_waited: bool = False


class Unplaced(WireStruct, array_like=True):
    """A pod (namespace/name) without a node, and why."""

    pod: str
    reason: str


class RealNode(WireStruct, kw_only=True):
    """A node that runs, as far as the ledger needs it. ``autoscaler`` is who scales it, "" if nobody does.

    Its time is counted up to ``counted``.
    """

    offering: Offering
    counted: datetime
    autoscaler: str = ""


class Record(msgspec.Struct, kw_only=True):
    """What one run leaves for the next.

    ``slot`` is the last scheduled time that was counted (seconds since the epoch, a multiple of the interval), ``at``
    the time of that run, and ``since`` that of the first. ``bindings`` and ``unplaced`` are by uid of the pod, ``real``
    by provider id. ``derived`` are NodePools that were made of the nodes, ``load`` is the load history, as text.
    ``days`` are those that aren't archived, ``notes`` what the report has to say about the fleet.
    """

    slot: int = 0
    at: datetime | None = None
    since: datetime | None = None
    nodes: list[VirtualNode] = []
    bindings: dict[str, Binding] = {}
    unplaced: dict[str, Unplaced] = {}
    real: dict[str, RealNode] = {}
    derived: list[NodePool] = []
    load: str = ""
    days: list[Day] = []
    notes: list[str] = []


FORM = BlobForm(Record, version=1, noun="a record of shadow mode")
"""The stored form of a record. One of another version isn't read: shadow mode begins again."""
DAY_FORM = BlobForm(Day, version=1, noun="a day of shadow mode")
"""The stored form of a day that has ended."""
