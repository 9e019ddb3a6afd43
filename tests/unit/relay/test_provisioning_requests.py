"""Which changes of ProvisioningRequests need a hint: Tenon itself writes their status."""

from __future__ import annotations

from relay.change_detection import ChangeDetector, ReconcileRequest
from relay.watched_kinds import KindListed, ObjectChanged
from relay.watched_room import WatchedRequest
from shared.api.meta import ObjectMeta
from shared.base import hints
from shared.cluster import resources

CHANGED = [ReconcileRequest(hints.CAPACITY_BUFFERS_CHANGED, "ml/train")]


def seen(detector: ChangeDetector, generation: int, *, deleted: bool = False) -> list[ReconcileRequest]:
    metadata = ObjectMeta(name="train", namespace="ml", uid="u", generation=generation)
    request = WatchedRequest(metadata=metadata)
    change = ObjectChanged(resource=resources.PROVISIONING_REQUESTS, object=request, deleted=deleted)
    return list(detector.detect(change))


def test_a_request_is_reported_when_it_is_new_or_its_spec_changes() -> None:
    detector = ChangeDetector()
    assert seen(detector, 1) == CHANGED
    assert seen(detector, 1) == []
    assert seen(detector, 2) == CHANGED
    assert seen(detector, 2, deleted=True) == []
    assert seen(detector, 2) == CHANGED


def test_a_request_that_a_list_leaves_out_is_new_when_it_is_back() -> None:
    detector = ChangeDetector()
    assert seen(detector, 1) == CHANGED
    assert list(detector.detect(KindListed(resource=resources.PROVISIONING_REQUESTS, objects=()))) == []
    assert seen(detector, 1) == CHANGED
