"""The API server refuses the NodePools and NodeClaims that Karpenter's v1 definitions refuse, and admits all others."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from local.kubernetes.errors import ApiError
from local.kubernetes.registry.store import Store
from shared.api import crds
from tests.conformance.admission_cases import ADMITTED, CHANGES, REFUSED

if TYPE_CHECKING:
    from tests.conformance.admission_cases import Raw

NOW = datetime(2026, 11, 21, tzinfo=UTC)


@pytest.fixture(scope="module")
def store() -> Store:
    store = Store(now=lambda: NOW)
    for definition in crds.load():
        store.create(store.kind(definition["apiVersion"], definition["kind"]), definition)
    return store


@pytest.mark.parametrize("obj", REFUSED.values(), ids=REFUSED.keys())
def test_what_karpenter_refuses_is_refused(store: Store, obj: Raw) -> None:
    with pytest.raises(ApiError) as refused:
        store.create(store.kind(obj["apiVersion"], obj["kind"]), obj)
    assert refused.value.status == 422


@pytest.mark.parametrize("obj", ADMITTED.values(), ids=ADMITTED.keys())
def test_what_karpenter_admits_is_admitted(store: Store, obj: Raw) -> None:
    kind = store.kind(obj["apiVersion"], obj["kind"])
    store.create(kind, obj)
    store.delete(kind, obj["metadata"]["name"])


@pytest.mark.parametrize(("obj", "change"), CHANGES.values(), ids=CHANGES.keys())
def test_what_may_not_change_is_refused(store: Store, obj: Raw, change: Raw) -> None:
    kind = store.kind(obj["apiVersion"], obj["kind"])
    store.create(kind, obj)
    with pytest.raises(ApiError) as refused:
        store.patch(kind, obj["metadata"]["name"], change)
    store.delete(kind, obj["metadata"]["name"])
    assert refused.value.status == 422
