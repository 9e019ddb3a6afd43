"""The definitions' rules, as a real API server applies them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from local.kubernetes.errors import ApiError
from tests.conformance.admission_cases import ADMITTED, CHANGES, REFUSED

if TYPE_CHECKING:
    from local.world import World
    from tests.conformance.admission_cases import Raw


def status_of(world: World, obj: Raw, change: Raw | None = None) -> int:
    """The status of creating the object and then changing it; the object is gone afterwards."""
    kind = world.store.kind(obj["apiVersion"], obj["kind"])
    name = obj["metadata"]["name"]
    try:
        world.store.create(kind, obj)
    except ApiError as error:
        return error.status
    status = 200
    if change is not None:
        try:
            world.store.patch(kind, name, change)
        except ApiError as error:
            status = error.status
    world.store.delete(kind, name)
    return status


def test_a_real_api_server_judges_as_the_embedded_one(world: World) -> None:
    assert {name: status_of(world, obj) for name, obj in REFUSED.items()} == dict.fromkeys(REFUSED, 422)
    assert {name: status_of(world, obj) for name, obj in ADMITTED.items()} == dict.fromkeys(ADMITTED, 200)
    changed = {name: status_of(world, obj, change) for name, (obj, change) in CHANGES.items()}
    assert changed == dict.fromkeys(CHANGES, 422)
