"""RBAC: what the cluster's own Roles and bindings let a user do, read from the store as an API server reads them.

Only allowing rules exist; a rule names API groups, resources (``pods/eviction`` for what is below one) and verbs. The
rules are gathered once for each user and change of the four kinds, because every request asks.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from local.kubernetes import kinds

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from local.kubernetes.apiserver.auth import User
    from local.kubernetes.kinds import Kind
    from local.kubernetes.objects import Obj
    from local.kubernetes.registry.store import Store

MASTERS = "system:masters"
"""The group that may do everything, whatever the rules say."""
_KINDS = (kinds.CLUSTER_ROLES, kinds.CLUSTER_ROLE_BINDINGS, kinds.ROLES, kinds.ROLE_BINDINGS)
_ANY = "*"


@dataclass(frozen=True, kw_only=True)
class Denial:
    """What somebody asked for and may not do."""

    user: str
    verb: str
    resource: str
    namespace: str = ""
    name: str = ""

    def __str__(self) -> str:
        where = f" in {self.namespace}" if self.namespace else ""
        return f"{self.user} may not {self.verb} {self.resource} {self.name}{where}"


@dataclass(frozen=True)
class _Grant:
    """A rule as a user has it; no namespace means everywhere."""

    namespace: str
    groups: frozenset[str]
    resources: frozenset[str]
    verbs: frozenset[str]
    names: frozenset[str]

    def covers(self, verb: str, kind: Kind, namespace: str, name: str) -> bool:
        return (
            (not self.namespace or self.namespace == namespace)
            and bool(self.verbs & {verb, _ANY})
            and bool(self.groups & {kind.group, _ANY})
            and bool(self.resources & {kind.plural, _ANY})
            and (not self.names or name in self.names)
        )


class Rbac:
    """An :data:`~local.kubernetes.apiserver.auth.Authorize`; ``denials`` is every refused request."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._versions: tuple[int, ...] = ()
        self._grants: dict[User, tuple[_Grant, ...]] = {}
        self.denials: list[Denial] = []

    def __call__(self, user: User, verb: str, kind: Kind, namespace: str, name: str) -> bool:
        """Whether the user may."""
        if MASTERS in user.groups:
            return True
        if any(grant.covers(verb, kind, namespace, name) for grant in self._of(user)):
            return True
        self.denials.append(Denial(user=user.name, verb=verb, resource=kind.plural, namespace=namespace, name=name))
        return False

    def _of(self, user: User) -> tuple[_Grant, ...]:
        versions = tuple(self._store.version_of(kind) for kind in _KINDS)
        with self._lock:
            if versions != self._versions:
                self._versions = versions
                self._grants = {}
            if user not in self._grants:
                self._grants[user] = tuple(self._gather(user))
            return self._grants[user]

    def _gather(self, user: User) -> Iterator[_Grant]:
        for kind in (kinds.CLUSTER_ROLE_BINDINGS, kinds.ROLE_BINDINGS):
            for binding in self._store.list(kind):
                if any(_is(subject, user) for subject in binding.get("subjects") or ()):
                    namespace = binding["metadata"].get("namespace", "")
                    for rule in self._rules(binding["roleRef"], namespace):
                        yield _grant(rule, namespace)

    def _rules(self, ref: Mapping[str, str], namespace: str) -> Sequence[Obj]:
        whole = ref["kind"] == "ClusterRole"
        found = self._store.find(
            kinds.CLUSTER_ROLES if whole else kinds.ROLES, ref["name"], namespace="" if whole else namespace
        )
        rules: Sequence[Obj] = (found or {}).get("rules") or ()
        return rules


def _is(subject: Mapping[str, Any], user: User) -> bool:
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
