"""Validating admission webhooks for new objects, as kube-apiserver calls them.

Rules, namespace and object selectors, matchConditions, the failure policy and the review are modelled; how a review
reaches its URL is up to whoever runs the store. Source: kubernetes ``pkg/admission/plugin/webhook`` and
https://kubernetes.io/docs/reference/access-authn-authz/extensible-admission-controllers/
"""

from __future__ import annotations

import copy
import uuid
from typing import TYPE_CHECKING, Any

import msgspec

from local.kubernetes import errors, kinds
from local.kubernetes.registry import cel_rules
from local.kubernetes.selectors import matches, parse_label_selector

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from local.kubernetes.kinds import Kind
    from local.kubernetes.objects import Obj
    from local.kubernetes.registry.object_storage import ObjectStorage

    Call = Callable[[str, bytes, float], bytes]

_DEFAULT_TIMEOUT_SECONDS = 10
_API_VERSION = "admission.k8s.io/v1"


class CallError(Exception):
    """A webhook could not be reached in time, or answered with an error; the text says how."""


class AdmissionWebhooks:
    """The webhooks of a cluster.

    ``call`` posts a review to a URL, with a timeout in seconds, or raises :class:`CallError`; without it none is.
    """

    def __init__(self, storage: ObjectStorage) -> None:
        self._storage = storage
        self.call: Call | None = None

    def of_new(self, kind: Kind, obj: Obj) -> list[Obj]:
        """The webhooks that are called for this new object."""
        if self.call is None or kind.resource == kinds.VALIDATING_WEBHOOK_CONFIGURATIONS.resource:
            return []
        configurations = self._storage.list(kinds.VALIDATING_WEBHOOK_CONFIGURATIONS)
        return [
            webhook for c in configurations for webhook in c.get("webhooks") or () if self._is_for(webhook, kind, obj)
        ]

    def admit(self, webhooks: list[Obj], kind: Kind, obj: Obj, *, dry_run: bool) -> None:
        """Ask these webhooks for leave to create the object.

        Raises:
            ApiError: 400 a webhook denies it; 500 one with the failure policy Fail can't be called.
        """
        for webhook in webhooks:
            try:
                allowed, message = self._ask(webhook, kind, obj, dry_run=dry_run)
            except CallError as error:
                if webhook.get("failurePolicy", "Fail") == "Fail":
                    raise errors.internal(f'failed calling webhook "{webhook["name"]}": {error}') from error
                continue
            if not allowed:
                raise errors.bad_request(f'admission webhook "{webhook["name"]}" denied the request: {message}')

    def _is_for(self, webhook: Obj, kind: Kind, obj: Obj) -> bool:
        if not any(_matches(rule, kind) for rule in webhook.get("rules") or ()):
            return False
        namespace = self._storage.find(kinds.NAMESPACES, obj["metadata"].get("namespace", ""))
        if namespace is not None and not _selects(webhook.get("namespaceSelector"), namespace):
            return False
        if not _selects(webhook.get("objectSelector"), obj):
            return False
        return all(_holds(condition["expression"], obj) for condition in webhook.get("matchConditions") or ())

    def _ask(self, webhook: Obj, kind: Kind, obj: Obj, *, dry_run: bool) -> tuple[bool, str]:
        assert self.call is not None
        request = _request(kind, obj, dry_run=dry_run)
        review = {"kind": "AdmissionReview", "apiVersion": _API_VERSION, "request": request}
        timeout = float(webhook.get("timeoutSeconds", _DEFAULT_TIMEOUT_SECONDS))
        answer = self.call(webhook["clientConfig"]["url"], msgspec.json.encode(review), timeout)
        try:
            response = msgspec.json.decode(answer, type=dict[str, Any])["response"]
            if response["uid"] != request["uid"]:
                raise CallError("the response's uid is another request's")
            return bool(response["allowed"]), str((response.get("status") or {}).get("message", ""))
        except (msgspec.MsgspecError, KeyError, TypeError) as error:
            raise CallError(f"invalid response: {error}") from error


def _request(kind: Kind, obj: Obj, *, dry_run: bool) -> Obj:
    names = {"group": kind.group, "version": kind.version}
    metadata = obj["metadata"]
    return {
        # Not the store's own randomness: a review changes no name of an object.
        "uid": str(uuid.uuid5(uuid.NAMESPACE_URL, metadata["uid"])),
        "kind": {**names, "kind": kind.kind},
        "resource": {**names, "resource": kind.plural},
        "requestKind": {**names, "kind": kind.kind},
        "requestResource": {**names, "resource": kind.plural},
        "name": "" if metadata.get("generateName") else metadata["name"],
        "namespace": metadata.get("namespace", ""),
        "operation": "CREATE",
        "userInfo": {"username": "system:admin", "groups": ["system:authenticated"]},
        "object": copy.deepcopy(obj),
        "oldObject": None,
        "dryRun": dry_run,
        "options": {"apiVersion": "meta.k8s.io/v1", "kind": "CreateOptions"},
    }


def _matches(rule: Obj, kind: Kind) -> bool:
    def has(field: str, value: str) -> bool:
        return not {"*", value}.isdisjoint(rule.get(field) or ())

    scope = {"Namespaced": kind.namespaced, "Cluster": not kind.namespaced}.get(rule.get("scope", "*"), True)
    return scope and all(_pairs(has, kind))


def _pairs(has: Callable[[str, str], bool], kind: Kind) -> Iterator[bool]:
    yield has("operations", "CREATE")
    yield has("apiGroups", kind.group)
    yield has("apiVersions", kind.version)
    yield has("resources", kind.plural)


def _selects(selector: Obj | None, obj: Obj) -> bool:
    """Whether the label selector selects the object; an absent one selects everything."""
    parsed = parse_label_selector(selector or {})
    return parsed is not None and matches(parsed, obj["metadata"].get("labels") or {})


def _holds(expression: str, obj: Obj) -> bool:
    """Whether a matchCondition holds; one that fails to evaluate doesn't, as with the failure policy Ignore."""
    return cel_rules.evaluate(expression, {"object": obj}) is True
