"""A seeded sequence of random requests: every verb, patch type and subresource, valid and invalid.

Requests depend on the answers only in the versions and tokens that they carry, so a seed gives the same sequence again.
"""

from __future__ import annotations

import copy
import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tests.real.differential.random_custom_objects import CUSTOM_KINDS
from tests.real.differential.random_objects import BUDGET, BUILT_IN_KINDS, NAMES, NAMESPACE, POD, metadata

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.real.differential.random_objects import Json, RandomKind

_MERGE, _JSON_PATCH, _STRATEGIC, _APPLY = (
    "application/merge-patch+json",
    "application/json-patch+json",
    "application/strategic-merge-patch+json",
    "application/apply-patch+yaml",
)
_LABEL_SELECTORS = ("app=web", "app!=web", "app in (web,db),tier", "!tier", "tier notin (x)", "app in", "a=b=c", "")
_FIELD_SELECTORS = ("metadata.name=a", "metadata.name!=a", "metadata.namespace=tests", "spec.unknown=x", "nothing")
_METADATA_ONLY = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"


@dataclass(frozen=True)
class RandomRequest:
    """A request to send; its body is JSON."""

    method: str
    path: str
    query: dict[str, str] = field(default_factory=dict)
    body: Any = None
    content_type: str = "application/json"
    accept: str = "application/json"


class RandomRequests:
    """Call :meth:`following` for the next request, and :meth:`observe` with its answer."""

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(seed)  # noqa: S311 - requests of a test
        self._versions: dict[str, list[str]] = {}
        self._objects: dict[str, Json] = {}
        self._token: tuple[str, dict[str, str]] | None = None
        self._actions: list[tuple[int, Callable[[RandomKind, str], RandomRequest]]] = [
            (24, self._create),
            (8, self._get),
            (10, self._list),
            (12, self._update),
            (8, self._status),
            (10, self._merge_patch),
            (8, self._strategic_patch),
            (6, self._json_patch),
            (8, self._apply),
            (10, self._delete),
            (2, self._delete_collection),
            (6, self._scale),
            (8, self._pod_subresource),
            (3, self._malformed),
        ]

    def following(self) -> RandomRequest:
        """The next request."""
        if self._token is not None:
            path, query = self._token
            self._token = None
            return RandomRequest("GET", path, query)
        weights = [weight for weight, _ in self._actions]
        action = self._rng.choices([action for _, action in self._actions], weights)[0]
        kind = self._rng.choice((POD, BUDGET, *BUILT_IN_KINDS, *CUSTOM_KINDS))
        request = action(kind, self._rng.choice(NAMES))
        if request.method != "GET" and self._rng.random() < 0.08:
            request.query["dryRun"] = "All"
        return request

    def observe(self, request: RandomRequest, answer: Json) -> None:
        """Take in the answer to the last request: its version, and its page's token."""
        meta = answer.get("metadata") or {}
        if token := meta.get("continue"):
            self._token = (request.path, {**request.query, "continue": token})
        elif meta.get("name") and "dryRun" not in request.query and answer.get("kind") not in {"Status", "Scale"}:
            path = _object_path(request.path, meta["name"])
            self._versions.setdefault(path, []).append(meta["resourceVersion"])
            self._objects[path] = answer

    # The verbs

    def _create(self, kind: RandomKind, name: str) -> RandomRequest:
        obj = self._object(kind, name)
        if self._rng.random() < 0.15:
            self._break(obj)
        if self._rng.random() < 0.1:
            del obj["metadata"]["name"]
            obj["metadata"]["generateName"] = "g-"
        namespace = NAMESPACE if self._rng.random() < 0.97 else "absent"
        return RandomRequest("POST", kind.collection(namespace), self._field_validation(kind, obj), obj)

    def _get(self, kind: RandomKind, name: str) -> RandomRequest:
        below = self._rng.choice(("", "", "/status", "/scale" if kind.scale else ""))
        return RandomRequest("GET", f"{kind.collection()}/{name}{below}")

    def _list(self, kind: RandomKind, _name: str) -> RandomRequest:
        rng, query = self._rng, {}
        if rng.random() < 0.4:
            query["labelSelector"] = rng.choice(_LABEL_SELECTORS)
        if rng.random() < 0.3:
            own = ("spec.nodeName=n", "status.phase=Running") if kind is POD else ("spec.mode=fast",)
            query["fieldSelector"] = rng.choice((*_FIELD_SELECTORS, *own))
        # A real server answers the second page by metadata.namespace with the first one again.
        if rng.random() < 0.4 and "metadata.namespace" not in query.get("fieldSelector", ""):
            query["limit"] = rng.choice(("1", "2"))
        path = kind.collection() if rng.random() < 0.8 or not kind.namespaced else _everywhere(kind)
        return RandomRequest("GET", path, query, accept=rng.choice(("application/json", _METADATA_ONLY)))

    def _update(self, kind: RandomKind, name: str) -> RandomRequest:
        path = f"{kind.collection()}/{name}"
        obj = copy.deepcopy(self._objects.get(path)) or self._object(kind, name)
        if self._rng.random() < 0.3:
            obj["metadata"]["labels"] = {"app": self._rng.choice(("web", "db", "new"))}
        if self._rng.random() < 0.7 and (change := kind.change(self._rng)):
            obj["spec"] = _merged(obj.get("spec") or {}, change.get("spec", change))
        if self._rng.random() < 0.1:
            self._break(obj)
        self._set_version(obj, path)
        if self._rng.random() < 0.05:
            obj["metadata"]["name"] = "another"
        return RandomRequest("PUT", path, {}, obj)

    def _status(self, kind: RandomKind, name: str) -> RandomRequest:
        if kind.status is None:
            return self._get(kind, name)
        path = f"{kind.collection()}/{name}"
        status = kind.status(self._rng)
        if self._rng.random() < 0.5:
            body = {"status": status, **({"spec": {"ignored": 1}} if self._rng.random() < 0.1 else {})}
            return RandomRequest("PATCH", f"{path}/status", {}, body, self._rng.choice((_MERGE, self._strategic(kind))))
        obj = copy.deepcopy(self._objects.get(path)) or self._object(kind, name)
        obj["status"] = status
        self._set_version(obj, path)
        return RandomRequest("PUT", f"{path}/status", {}, obj)

    def _merge_patch(self, kind: RandomKind, name: str) -> RandomRequest:
        return RandomRequest("PATCH", f"{kind.collection()}/{name}", {}, self._patch(kind), _MERGE)

    def _strategic_patch(self, kind: RandomKind, name: str) -> RandomRequest:
        patch = self._patch(kind)
        if self._rng.random() < 0.3:
            patch["metadata"] = self._rng.choice((
                {"finalizers": ["example.com/more"]},
                {"$deleteFromPrimitiveList/finalizers": ["example.com/hold"]},
                {"labels": {"$patch": "replace", "only": "this"}},
            ))  # fmt: skip
        content_type = _STRATEGIC if self._rng.random() < 0.1 else self._strategic(kind)
        return RandomRequest("PATCH", f"{kind.collection()}/{name}", {}, patch, content_type)

    def _json_patch(self, kind: RandomKind, name: str) -> RandomRequest:
        operation = self._rng.choice((
            {"op": "add", "path": "/metadata/labels/added", "value": "1"},
            {"op": "remove", "path": "/metadata/labels/tier"},
            {"op": "replace", "path": "/metadata/labels/app", "value": "db"},
            {"op": "test", "path": "/metadata/labels/app", "value": "web"},
            {"op": "copy", "from": "/metadata/labels/app", "path": "/metadata/labels/copied"},
            {"op": "move", "from": "/metadata/labels/app", "path": "/metadata/labels/moved"},
            {"op": "remove", "path": "/metadata/finalizers"},
        ))  # fmt: skip
        tested = {"op": "test", "path": "/metadata/name", "value": name}
        operations = [tested, operation] if self._rng.random() < 0.3 else [operation]
        return RandomRequest("PATCH", f"{kind.collection()}/{name}", {}, operations, _JSON_PATCH)

    def _apply(self, kind: RandomKind, name: str) -> RandomRequest:
        rng = self._rng
        body: Json = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {"name": name}}
        body["metadata"] |= rng.choice((
            {"labels": {"app": rng.choice(("web", "db"))}},
            {"labels": {"applied": "1"}},
            {"labels": {"app": "web"}, "annotations": {"example.com/applied": rng.choice(("1", "2"))}},
        ))  # fmt: skip
        if rng.random() < 0.3:
            body |= kind.spec(rng)
        query = {"fieldManager": rng.choice(("one", "two"))} if rng.random() < 0.95 else {}
        if rng.random() < 0.4:
            query["force"] = "true"
        return RandomRequest("PATCH", f"{kind.collection()}/{name}", query, body, _APPLY)

    def _delete(self, kind: RandomKind, name: str) -> RandomRequest:
        rng, path = self._rng, f"{kind.collection()}/{name}"
        options: Json = {}
        if rng.random() < 0.4:
            options["gracePeriodSeconds"] = rng.choice((0, 0, 5, 100))
        if rng.random() < 0.3:
            options["propagationPolicy"] = rng.choice(("Background", "Foreground", "Orphan", "Sideways"))
        if rng.random() < 0.2:
            versions = self._versions.get(path, ["1"])
            options["preconditions"] = rng.choice(({"resourceVersion": rng.choice(versions)}, {"uid": "another"}))
        return RandomRequest("DELETE", path, {}, options or None)

    def _delete_collection(self, kind: RandomKind, _name: str) -> RandomRequest:
        return RandomRequest("DELETE", kind.collection(), {"labelSelector": "tier=x"})

    def _scale(self, kind: RandomKind, name: str) -> RandomRequest:
        if not kind.scale:
            return self._get(kind, name)
        path = f"{kind.collection()}/{name}"
        replicas = self._rng.choice((0, 1, 4, -1))
        if self._rng.random() < 0.5:
            return RandomRequest("PATCH", f"{path}/scale", {}, {"spec": {"replicas": replicas}}, _MERGE)
        meta = {"name": name, "namespace": NAMESPACE}
        scale = {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": meta, "spec": {"replicas": replicas}}
        self._set_version(scale, path)
        return RandomRequest("PUT", f"{path}/scale", {}, scale)

    def _pod_subresource(self, _kind: RandomKind, name: str) -> RandomRequest:
        rng, path, meta = self._rng, f"{POD.collection()}/{name}", {"name": name, "namespace": NAMESPACE}
        if rng.random() < 0.4:
            target = {"apiVersion": "v1", "kind": "Node", "name": rng.choice(("n", "m"))}
            binding = {"apiVersion": "v1", "kind": "Binding", "metadata": meta, "target": target}
            return RandomRequest("POST", f"{path}/binding", {}, binding)
        eviction: Json = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": meta}
        if rng.random() < 0.3:
            version = rng.choice(self._versions.get(path, ["1"]))
            eviction["deleteOptions"] = rng.choice((
                {"gracePeriodSeconds": 1},
                {"preconditions": {"resourceVersion": version}},
                {"dryRun": ["All"]},
            ))  # fmt: skip
        return RandomRequest("POST", f"{path}/eviction", {}, eviction)

    def _malformed(self, kind: RandomKind, name: str) -> RandomRequest:
        path, rng = f"{kind.collection()}/{name}", self._rng
        wrong = {**self._object(POD, name), "kind": "Other"}
        return rng.choice((
            RandomRequest("POST", POD.collection(), {}, wrong),
            RandomRequest("PATCH", path, {}, {}, "application/unknown"),
            RandomRequest("POST", f"{POD.collection()}/{name}", {}, self._object(POD, name)),
            RandomRequest("PUT", kind.collection(), {}, self._object(kind, name)),
            RandomRequest("GET", f"{path}/unknown"),
            RandomRequest("PATCH", path, {}, self._patch(kind), _APPLY),
        ))  # fmt: skip

    # Their parts

    def _object(self, kind: RandomKind, name: str) -> Json:
        head = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata(self._rng, name)}
        return {**head, **kind.spec(self._rng)}

    def _break(self, obj: Json) -> None:
        """Break the metadata in one way, in place."""
        obj["metadata"] |= self._rng.choice((
            {"labels": {"app": "no spaces"}},
            {"labels": {"/x": "y"}},
            {"labels": {"app": 5}},
            {"name": "Not_Valid"},
            {"namespace": "another"},
            {"finalizers": ["unqualified"]},
            {"ownerReferences": [{"apiVersion": "v1", "kind": "ConfigMap", "name": "x"}]},
            {"uid": "22222222-2222-3333-4444-555555555555"},
            {"annotations": {"no spaces": "x"}},
        ))  # fmt: skip

    def _patch(self, kind: RandomKind) -> Json:
        patch: Json = {}
        if self._rng.random() < 0.5:
            patch["metadata"] = self._rng.choice((
                {"labels": {"app": self._rng.choice(("web", "db"))}},
                {"labels": {"tier": None}},
                {"labels": {"app": "no spaces"}},
                {"annotations": {"example.com/note": "patched"}},
                {"finalizers": None},
                {"resourceVersion": "1"},
            ))  # fmt: skip
        if self._rng.random() < 0.6 and (change := kind.change(self._rng)):
            patch["spec"] = change.get("spec", change)
        return patch

    def _set_version(self, obj: Json, path: str) -> None:
        """Set a resourceVersion, in place: mostly the last that was seen; or an older one, or none."""
        versions = self._versions.get(path, ["1"])
        obj["metadata"]["resourceVersion"] = versions[-1]
        if self._rng.random() < 0.15:
            obj["metadata"]["resourceVersion"] = self._rng.choice(versions)
        elif self._rng.random() < 0.15:
            del obj["metadata"]["resourceVersion"]

    def _field_validation(self, kind: RandomKind, obj: Json) -> dict[str, str]:
        """Strict validation, sometimes, of a custom object with an unknown field."""
        if not kind.is_custom or self._rng.random() < 0.8:
            return {}
        obj.setdefault("spec", {})["surplus"] = 1
        return {"fieldValidation": self._rng.choice(("Strict", "Ignore"))}

    @staticmethod
    def _strategic(kind: RandomKind) -> str:
        """The content type of a strategic patch, which custom kinds don't support."""
        return _MERGE if kind.is_custom else _STRATEGIC


def _object_path(path: str, name: str) -> str:
    parts = path.split("/")
    plural = parts.index("namespaces") + 2 if "namespaces" in parts else (3 if parts[1] == "api" else 4)
    return "/".join([*parts[: plural + 1], name])


def _everywhere(kind: RandomKind) -> str:
    return kind.collection().replace(f"/namespaces/{NAMESPACE}", "")


def _merged(target: Json, patch: Json) -> Json:
    merged = {**target}
    for name, value in patch.items():
        inner = merged.get(name)
        merged[name] = _merged(inner, value) if isinstance(value, dict) and isinstance(inner, dict) else value
    return {name: value for name, value in merged.items() if value is not None}
