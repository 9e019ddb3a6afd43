"""The end of claims: instances terminated by one call for all, and what EC2 says is gone let go, finalizers last."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from msgspec.structs import replace

from shared import runtime
from shared.api import labels as names
from shared.api import nodeclaim
from shared.api.meta import with_condition
from shared.cluster import resources, writes
from shared.cluster.errors import NotFoundError
from shared.launch.instances import describe, instance_id
from shared.launch.termination import terminate
from shared.termination.requeue import WaitReason

if TYPE_CHECKING:
    from aws_lambda_powertools import Logger

    from functions.termination.requeue_sender import Looks
    from shared.api.kubernetes import Node
    from shared.api.nodeclaim import NodeClaim
    from shared.cluster.client import Client

_GONE = "terminated"
_LEAVING = frozenset({"shutting-down", _GONE})


class Ending:
    """The claims of one invocation that nothing keeps any more."""

    def __init__(self, client: Client, looks: Looks, *, logger: Logger) -> None:
        self._client = client
        self._looks = looks
        self._logger = logger
        self._ready: dict[str, tuple[NodeClaim, Node | None]] = {}

    def add(self, claim: NodeClaim, node: Node | None) -> None:
        """The claim is up for its end; its node, if it has one, is empty or dead."""
        self._ready[claim.name] = (claim, node)

    def carry_out(self) -> None:
        """Terminate what still lives, by one call; let go what EC2 says is gone; look again at the rest.

        Raises:
            ClientError: EC2 refused; nothing was let go.
        """
        ids = {name: instance_id(claim.status.provider_id) for name, (claim, _) in self._ready.items()}
        wanted = sorted({i for i in ids.values() if i})
        known = {i.id: i.state for i in describe(wanted)} if wanted else {}
        living = [i for i, state in known.items() if state not in _LEAVING]
        if living:
            terminate(living)
            self._logger.info("Terminated instances", extra={"instances": living, "nodeclaims": sorted(ids)})
        for name, (claim, node) in self._ready.items():
            if known.get(ids[name], _GONE) == _GONE:
                self._let_go(claim, node)
                continue
            if ids[name] in living:
                self._note(claim)
            self._looks.again(claim, WaitReason.INSTANCE)
        self._ready.clear()

    def remove(self, node: Node) -> None:
        """Delete a node and take our finalizer off it."""
        writes.delete(self._client, resources.NODES, node)
        writes.remove_finalizer(self._client, resources.NODES, node, names.TERMINATION_FINALIZER)

    def _let_go(self, claim: NodeClaim, node: Node | None) -> None:
        if node is not None:
            self.remove(node)
        writes.remove_finalizer(self._client, resources.NODE_CLAIMS, claim, names.TERMINATION_FINALIZER)

    def _note(self, claim: NodeClaim) -> None:
        """Say on the claim that its instance is on its way out."""
        now = runtime.current().now()

        def change(current: NodeClaim) -> NodeClaim:
            conditions = with_condition(
                current.status.conditions,
                nodeclaim.INSTANCE_TERMINATING,
                status=True,
                reason="InstanceTerminating",
                now=now,
            )
            return replace(current, status=replace(current.status, conditions=conditions))

        with contextlib.suppress(NotFoundError):
            writes.update_status(self._client, resources.NODE_CLAIMS, claim, change)
