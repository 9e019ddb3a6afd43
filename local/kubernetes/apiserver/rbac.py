"""RBAC authorization by the Roles, ClusterRoles and bindings in the store.

Rules only allow; a rule names API groups, resources (with subresources such as ``pods/eviction``) and verbs. The rules
of a user are cached until an object of the four kinds changes.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, NamedTuple

from local.kubernetes import kinds
from shared.base.struct import Struct

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from local.kubernetes.apiserver.auth import User
    from local.kubernetes.kinds import Kind
    from local.kubernetes.objects import Obj
    from local.kubernetes.registry.store import Store

MASTERS_GROUP = "system:masters"
"""The group with all rights, regardless of rules."""
_KINDS = (kinds.CLUSTER_ROLES, kinds.CLUSTER_ROLE_BINDINGS, kinds.ROLES, kinds.ROLE_BINDINGS)
_ANY = "*"


class Denial(Struct, kw_only=True):
    """A denied request."""

    user: str
    verb: str
    resource: str
    namespace: str = ""
    name: str = ""

    def __str__(self) -> str:
        scope = f" in {self.namespace}" if self.namespace else ""
        return f"{self.user} cannot {self.verb} {self.resource} {self.name}{scope}"


class Use(NamedTuple):
    """A right that a request needed and had. ``subject`` is the user or one of its groups."""

    subject: str
    verb: str
    group: str
    resource: str


class _Grant(Struct):
    """A rule that applies to a user; without a namespace, in all of them."""

    namespace: str
    groups: frozenset[str]
    resources: frozenset[str]
    verbs: frozenset[str]
    names: frozenset[str]

    def allows(self, verb: str, kind: Kind, namespace: str, name: str) -> bool:
        return (
            (not self.namespace or self.namespace == namespace)
            and bool(self.verbs & {verb, _ANY})
            and bool(self.groups & {kind.group, _ANY})
            and bool(self.resources & {kind.plural, _ANY})
            and (not self.names or name in self.names)
        )


class Rbac:
    """An :data:`~local.kubernetes.apiserver.auth.Authorize`; ``denials`` is every refused request.

    ``uses`` are the rights that requests have used so far.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._versions: tuple[int, ...] = ()
        self._grants: dict[User, tuple[_Grant, ...]] = {}
        self.denials: list[Denial] = []
        self.uses: set[Use] = set()

    def __call__(self, user: User, verb: str, kind: Kind, namespace: str, name: str) -> bool:
        """Whether the user is authorized."""
        if MASTERS_GROUP in user.groups:
            return True
        if any(grant.allows(verb, kind, namespace, name) for grant in self._grants_of(user)):
            self.uses.update(Use(subject, verb, kind.group, kind.plural) for subject in (user.name, *user.groups))
            return True
        self.denials.append(Denial(user=user.name, verb=verb, resource=kind.plural, namespace=namespace, name=name))
        return False

    def _grants_of(self, user: User) -> tuple[_Grant, ...]:
        versions = tuple(self._store.version_of(kind) for kind in _KINDS)
        with self._lock:
            if versions != self._versions:
                self._versions = versions
                self._grants = {}
            if user not in self._grants:
                self._grants[user] = tuple(self._read_grants(user))
            return self._grants[user]

    def _read_grants(self, user: User) -> Iterator[_Grant]:
        for kind in (kinds.CLUSTER_ROLE_BINDINGS, kinds.ROLE_BINDINGS):
            for binding in self._store.list(kind):
                if any(_is_subject(subject, user) for subject in binding.get("subjects") or ()):
                    namespace = binding["metadata"].get("namespace", "")
                    for rule in self._rules(binding["roleRef"], namespace):
                        yield _grant(rule, namespace)

    def _rules(self, ref: Mapping[str, str], namespace: str) -> Sequence[Obj]:
        is_cluster_role = ref["kind"] == "ClusterRole"
        kind = kinds.CLUSTER_ROLES if is_cluster_role else kinds.ROLES
        role = self._store.find(kind, ref["name"], namespace="" if is_cluster_role else namespace)
        rules: Sequence[Obj] = (role or {}).get("rules") or ()
        return rules


def _is_subject(subject: Mapping[str, Any], user: User) -> bool:
    name = subject.get("name", "")
    match subject.get("kind"):
        case "Group":
            return name in user.groups
        case "User":
            return bool(name == user.name)
        case "ServiceAccount":
            return user.name == f"system:serviceaccount:{subject.get('namespace', '')}:{name}"
    return False


def _grant(rule: Obj, namespace: str) -> _Grant:
    return _Grant(
        namespace=namespace,
        groups=frozenset(rule.get("apiGroups") or ()),
        resources=frozenset(rule.get("resources") or ()),
        verbs=frozenset(rule.get("verbs") or ()),
        names=frozenset(rule.get("resourceNames") or ()),
    )
