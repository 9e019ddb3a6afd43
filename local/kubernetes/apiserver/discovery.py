"""Discovery: the groups, versions and resources from which clients derive paths."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from local.kubernetes import errors

if TYPE_CHECKING:
    from collections.abc import Iterable

    from local.kubernetes.kinds import Kind
    from local.kubernetes.objects import Obj

VERSION = "1.36"
"""The version whose behavior was measured."""

_VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")
_SUBRESOURCE: dict[str, tuple[str, str, str, tuple[str, ...]]] = {
    "eviction": ("policy", "v1", "Eviction", ("create",)),
    "binding": ("", "v1", "Binding", ("create",)),
    "resize": ("", "v1", "Pod", ("get", "patch", "update")),
    "scale": ("autoscaling", "v1", "Scale", ("get", "patch", "update")),
}


def version(minor: str) -> Obj:
    """The response of ``/version`` for a minor version ("1.36")."""
    major, _, number = minor.partition(".")
    return {
        "major": major,
        "minor": number,
        "gitVersion": f"v{minor}.2-tenon",
        "gitCommit": "",
        "gitTreeState": "clean",
        "buildDate": "2026-11-21T00:00:00Z",
        "goVersion": "",
        "compiler": "",
        "platform": "linux/amd64",
    }


def root(served: Iterable[Kind], path: str) -> Obj:
    """The documents above the group versions: ``""``, ``/api``, ``/apis``, ``/apis/group``.

    Raises:
        ApiError: 404.
    """
    groups = _groups(served)
    match path.strip("/").split("/"):
        case [""]:
            paths = ["/api", "/api/v1", "/apis", "/healthz", "/openapi/v2", "/openapi/v3", "/readyz", "/version"]
            paths += [f"/apis/{group}/{version}" for group, versions in groups.items() if group for version in versions]
            return {"paths": sorted(paths)}
        case ["api"]:
            return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}
        case ["apis"]:
            listed_groups = [_group(group, versions) for group, versions in groups.items() if group]
            return {"kind": "APIGroupList", "apiVersion": "v1", "groups": listed_groups}
        case ["apis", group] if group in groups:
            return {"kind": "APIGroup", "apiVersion": "v1", **_group(group, groups[group])}
    raise errors.no_such_path()


def resources(served: Iterable[Kind], group: str, version: str) -> Obj:
    """The ``APIResourceList`` of a group version.

    Raises:
        ApiError: 404.
    """
    listed: list[dict[str, Any]] = []
    for kind in served:
        if (kind.group, kind.version) != (group, version):
            continue
        listed.append(
            {
                "name": kind.plural,
                "singularName": kind.singular,
                "namespaced": kind.namespaced,
                "kind": kind.kind,
                "verbs": list(_VERBS),
                **({"shortNames": list(kind.short_names)} if kind.short_names else {}),
                **({"categories": list(kind.categories)} if kind.categories else {}),
            }
        )
        listed.extend(_subresource(kind, name) for name in kind.subresources)
    if group == "authorization.k8s.io" and version == "v1":
        listed.append(
            {
                "name": "selfsubjectaccessreviews",
                "singularName": "selfsubjectaccessreview",
                "namespaced": False,
                "kind": "SelfSubjectAccessReview",
                "verbs": ["create"],
            }
        )
    if not listed:
        raise errors.no_such_path()
    group_version = f"{group}/{version}" if group else version
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version, "resources": listed}


def _subresource(kind: Kind, name: str) -> dict[str, Any]:
    common = {"name": f"{kind.plural}/{name}", "singularName": "", "namespaced": kind.namespaced}
    if name not in _SUBRESOURCE:
        return {**common, "kind": kind.kind, "verbs": ["get", "patch", "update"]}
    group, version, kind_name, verbs = _SUBRESOURCE[name]
    group_version = {"group": group, "version": version} if group else {}
    return {**common, **group_version, "kind": kind_name, "verbs": list(verbs)}


def _groups(served: Iterable[Kind]) -> dict[str, list[str]]:
    groups: dict[str, list[str]] = {}
    for kind in served:
        versions = groups.setdefault(kind.group, [])
        if kind.version not in versions:
            versions.append(kind.version)
    groups.setdefault("authorization.k8s.io", ["v1"])
    return groups


def _group(name: str, versions: list[str]) -> Obj:
    ordered = sorted(versions, key=_version_priority)
    listed = [{"groupVersion": f"{name}/{version}", "version": version} for version in ordered]
    return {"name": name, "versions": listed, "preferredVersion": listed[0]}


def _version_priority(version: str) -> tuple[int, str]:
    """Stable versions first, then beta, then alpha."""
    return (2 if "alpha" in version else 1 if "beta" in version else 0, version)
