"""What the relay decodes of CapacityBuffers and ProvisioningRequests: room that is wanted before there are pods."""

from __future__ import annotations

from shared.api import labels as names
from shared.api.buffer_signals import RENEWED
from shared.api.capacity_buffer import ACTIVE_CAPACITY
from shared.api.meta import ApiStruct, ObjectMeta


class _Namespaced(ApiStruct):
    metadata: ObjectMeta = ObjectMeta()

    @property
    def key(self) -> str:
        """``namespace/name``."""
        return f"{self.metadata.namespace}/{self.metadata.name}"


class BufferSpec(ApiStruct):
    """The strategy of a CapacityBuffer."""

    provisioning_strategy: str = ACTIVE_CAPACITY


class WatchedBuffer(_Namespaced):
    """A CapacityBuffer."""

    spec: BufferSpec = BufferSpec()

    @property
    def is_active(self) -> bool:
        """Whether Tenon provides it."""
        return self.spec.provisioning_strategy == ACTIVE_CAPACITY

    @property
    def version(self) -> tuple[str, int, frozenset[tuple[str, str]]]:
        """What changes with its spec and with the annotations that say how many chunks are wanted.

        Of times that are renewed while nothing changes, only that they are there.
        """
        demand = (
            (name, "" if name in RENEWED else text)
            for name, text in self.metadata.annotations.items()
            if name.startswith(names.OWN_PREFIX)
        )
        return self.metadata.uid, self.metadata.generation, frozenset(demand)


class WatchedRequest(_Namespaced):
    """A ProvisioningRequest: that there is one, or that its spec changed, is all that matters."""

    @property
    def version(self) -> tuple[str, int]:
        """What changes with its spec."""
        return self.metadata.uid, self.metadata.generation
