"""A list at a version and the changes since then are always the present state."""

from __future__ import annotations

import random
from datetime import UTC, datetime
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from local.kubernetes import kinds
from local.kubernetes.registry.store import Store

_NOW = datetime(2026, 11, 21, tzinfo=UTC)
_steps = st.lists(
    st.tuples(st.sampled_from(["write", "delete"]), st.sampled_from("abc"), st.integers(0, 2)), max_size=20
)


def carried_out(store: Store, steps: list[tuple[str, str, int]]) -> dict[int, list[dict[str, Any]]]:
    """Every state of the config maps, by version."""
    states = {store.version: store.list(kinds.CONFIG_MAPS)}
    for action, name, value in steps:
        there = store.find(kinds.CONFIG_MAPS, name, namespace="default") is not None
        if action == "delete" and there:
            store.delete(kinds.CONFIG_MAPS, name, namespace="default")
        elif action == "write" and there:
            store.patch(kinds.CONFIG_MAPS, name, {"data": {"v": str(value)}}, namespace="default")
        elif action == "write":
            store.create(kinds.CONFIG_MAPS, {"metadata": {"name": name}, "data": {"v": str(value)}})
        states[store.version] = store.list(kinds.CONFIG_MAPS)
    return states


@given(_steps)
def test_a_list_at_any_version_of_the_history_has_the_state_of_that_version(steps: list[tuple[str, str, int]]) -> None:
    store = Store(now=lambda: _NOW, rng=random.Random(1))  # noqa: S311 (names and uids of a test)
    states = carried_out(store, steps)
    assert {version: store.list(kinds.CONFIG_MAPS, version=version) for version in states} == states


@given(_steps)
def test_a_client_that_lists_and_watches_knows_the_present_state(steps: list[tuple[str, str, int]]) -> None:
    store = Store(now=lambda: _NOW, rng=random.Random(1))  # noqa: S311 (names and uids of a test)
    for version, state in carried_out(store, steps).items():
        known = {obj["metadata"]["name"]: obj for obj in state}
        for change in store.changes_since(kinds.CONFIG_MAPS, version):
            name = change.object["metadata"]["name"]
            assert (name in known) == (change.type != "ADDED")
            if change.type == "DELETED":
                del known[name]
            else:
                known[name] = change.object
        assert [known[name] for name in sorted(known)] == store.list(kinds.CONFIG_MAPS)
