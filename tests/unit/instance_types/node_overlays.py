"""NodeOverlays for tests, as they are applied from manifests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from shared.api.decode import read_node_overlay

if TYPE_CHECKING:
    from shared.api.node_overlay import NodeOverlay


def overlay(name: str, *requirements: tuple[str, str, list[str]], **spec: Any) -> NodeOverlay:
    """A valid overlay; requirements are (key, operator, values)."""
    outcome = read_node_overlay(manifest(name, *requirements, **spec))
    assert outcome.value is not None, outcome.problems
    return outcome.value


def manifest(name: str, *requirements: tuple[str, str, list[str]], **spec: Any) -> dict[str, Any]:
    """The overlay as JSON."""
    return {
        "apiVersion": "karpenter.sh/v1alpha1",
        "kind": "NodeOverlay",
        "metadata": {"name": name},
        "spec": {
            "requirements": [{"key": k, "operator": o, "values": values} for k, o, values in requirements],
            **spec,
        },
    }
