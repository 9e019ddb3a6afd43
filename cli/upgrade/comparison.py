"""What an upgrade changes: the deployed versions and objects, compared with those of this installation. Pure.

An API server adds defaults to what it stores. So an object is unchanged if the stored one has all that this version
would apply; fields of a kind that only the stored definition has are named, because an upgrade removes them.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Literal

from cli.json_output import Output
from infra.cluster.kubernetes import kinds_check

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

State = Literal["unchanged", "changed", "missing", "foreign", "unreadable"]

_COMPARED = ("spec", "rules", "roleRef", "subjects")
_VERSION = re.compile(r"\(Tenon (\S+)\)$")
UNKNOWN = "unknown"
"""The version of a deployment that doesn't say it."""


class ObjectChange(Output, frozen=True, kw_only=True):
    """An object in the cluster, and what an upgrade does to it. ``detail`` says what differs, or why it is unread."""

    kind: str
    name: str
    state: State
    detail: str = ""


class UpgradeCheck(Output, frozen=True, kw_only=True):
    """What deploying the installed version changes.

    ``deployed`` has the versions of the functions, usually one; "unknown" is one from before versions were recorded.
    ``objects`` are those that aren't unchanged, of ``compared``. ``rehashedPools`` are NodePools whose hash is computed
    again by another rule; their nodes don't drift by it. ``obstacles`` must be removed first; ``next`` is what to do.
    """

    cluster: str
    installed: str
    deployed: list[str]
    objects: list[ObjectChange]
    compared: int
    rehashed_pools: int
    obstacles: list[str]
    next: str


def version_of(description: str) -> str:
    """The version that a function's description names.

    >>> version_of("Tenon relay of EKS cluster prod (Tenon 0.1.0)")
    '0.1.0'
    >>> version_of("Tenon relay of EKS cluster prod")
    'unknown'
    """
    match = _VERSION.search(description)
    return match[1] if match else UNKNOWN


def change(expected: Mapping[str, Any], stored: Mapping[str, Any] | None, *, auto_mode: bool = False) -> ObjectChange:
    """What applying ``expected`` does to the stored object."""
    kind, metadata = expected["kind"], expected["metadata"]
    name = "/".join(filter(None, (metadata.get("namespace", ""), metadata["name"])))
    if stored is None:
        return ObjectChange(kind=kind, name=name, state="missing", detail="it is created")
    if kind == "CustomResourceDefinition" and (owner := kinds_check.foreign_owner(stored, auto_mode=auto_mode)):
        return ObjectChange(kind=kind, name=name, state="foreign", detail=f"it belongs to {owner}")
    paths = [path for key in _COMPARED if key in expected for path in _lacking(expected[key], stored.get(key), key)]
    details = [_named("set", paths)] if paths else []
    if kind == "CustomResourceDefinition" and (removed := sorted(_fields(stored) - _fields(expected))):
        details.append(_named("removed", removed))
    return ObjectChange(kind=kind, name=name, state="changed" if details else "unchanged", detail="; ".join(details))


def check(
    *,
    cluster: str,
    installed: str,
    deployed: Sequence[str],
    objects: Sequence[ObjectChange],
    rehashed_pools: int,
) -> UpgradeCheck:
    """What the upgrade changes, and whether something is in its way."""
    obstacles = [f"{o.kind} {o.name}: {o.detail}" for o in objects if o.state == "foreign"]
    newer = [version for version in deployed if _order(version) > _order(installed)]
    if newer:
        obstacles.append(f"version {newer[0]} is deployed, and this is the older {installed}: install {newer[0]}")
    changed = [o for o in objects if o.state != "unchanged"]
    return UpgradeCheck(
        cluster=cluster,
        installed=installed,
        deployed=list(deployed),
        objects=changed,
        compared=len(objects),
        rehashed_pools=rehashed_pools,
        obstacles=obstacles,
        next=_next(cluster, installed, deployed, changed, obstacles),
    )


def _next(
    cluster: str, installed: str, deployed: Sequence[str], changed: Sequence[ObjectChange], obstacles: Sequence[str]
) -> str:
    if obstacles:
        return "remove the obstacles first (docs/migration.md says who else brings these kinds)"
    if not changed and set(deployed) == {installed}:
        return "nothing: this version is deployed (a deployment with other settings or code may still change functions)"
    apply = f"; with clusterSide=printed, first `tenon manifests {cluster} | kubectl apply --server-side -f -`"
    return f"deploy again as before, with this version{apply if changed else ''}, then `tenon status`"


def _order(version: str) -> tuple[int, ...]:
    return () if version == UNKNOWN else tuple(int(part) for part in re.findall(r"\d+", version))


def _lacking(expected: object, stored: object, path: str) -> Iterator[str]:
    """The paths at which the stored value lacks what is expected."""
    if isinstance(expected, dict) and isinstance(stored, dict):
        for key, value in expected.items():
            yield from _lacking(value, stored.get(key), f"{path}.{key}")
    elif isinstance(expected, list) and isinstance(stored, list) and len(expected) == len(stored):
        for index, (value, present) in enumerate(zip(expected, stored, strict=True)):
            yield from _lacking(value, present, f"{path}[{index}]")
    elif expected != stored and (expected or stored):
        yield path


def _fields(definition: Mapping[str, Any]) -> set[str]:
    """The fields of all versions of a kind."""
    schemas = (version.get("schema", {}).get("openAPIV3Schema", {}) for version in definition["spec"]["versions"])
    return {path for schema in schemas for path in _properties(schema, "")}


def _properties(schema: Mapping[str, Any], path: str) -> Iterator[str]:
    for name, child in (schema.get("properties") or {}).items():
        own = f"{path}.{name}".lstrip(".")
        yield own
        yield from _properties(child, own)
    if isinstance(items := schema.get("items"), dict):
        yield from _properties(items, f"{path}[]")


def _named(verb: str, paths: Sequence[str]) -> str:
    more = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
    return f"{paths[0]}{more} {verb}"
