"""Label and field selectors, as texts in URLs and as objects.

Syntax and semantics: apimachinery ``labels`` and ``fields``. A malformed selector is a 400, as on a real server.
"""

from __future__ import annotations

import functools
import re
from typing import TYPE_CHECKING, Any, NamedTuple

from local.kubernetes import errors

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from local.kubernetes.kinds import Kind


class Requirement(NamedTuple):
    """``key operator values``; operators are in, notin, exists, absent, gt, lt."""

    key: str
    operator: str
    values: frozenset[str] = frozenset()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether the labels match; a missing key matches notin and absent."""
        present = self.key in labels
        match self.operator:
            case "in":
                return present and labels[self.key] in self.values
            case "notin":
                return not present or labels[self.key] not in self.values
            case "exists":
                return present
            case "absent":
                return not present
            case _:
                return present and self._compares(labels[self.key])

    def _compares(self, value: str) -> bool:
        try:
            left, right = int(value), int(next(iter(self.values)))
        except ValueError:
            return False
        return left > right if self.operator == "gt" else left < right


Selector = tuple[Requirement, ...]
"""All requirements must match; an empty selector matches everything."""

_KEY = r"[A-Za-z0-9](?:[-A-Za-z0-9_./]*[A-Za-z0-9])?"
_VALUE = r"[-A-Za-z0-9_.]*"
_SET = re.compile(rf"\s*({_KEY})\s+(in|notin)\s*\(([^()]*)\)\s*")
_EQUALS = re.compile(rf"\s*({_KEY})\s*(==|=|!=|>|<)\s*({_VALUE})\s*")
_EXISTS = re.compile(rf"\s*(!?)\s*({_KEY})\s*")


@functools.lru_cache(maxsize=1024)
def parse_labels(text: str) -> Selector:
    """The requirements of a ``labelSelector`` parameter: ``app=x,tier in (a,b),!old``.

    Raises:
        ApiError: 400, the text is malformed.
    """
    requirements: list[Requirement] = []
    at = 0
    while at < len(text):
        if match := _SET.match(text, at):
            key, operator, listed = match.groups()
            requirements.append(Requirement(key, operator, frozenset(v.strip() for v in listed.split(","))))
        elif match := _EQUALS.match(text, at):
            key, sign, value = match.groups()
            operator = {"!=": "notin", ">": "gt", "<": "lt"}.get(sign, "in")
            requirements.append(Requirement(key, operator, frozenset((value,))))
        elif match := _EXISTS.match(text, at):
            requirements.append(Requirement(match[2], "absent" if match[1] else "exists"))
        else:
            raise errors.bad_request(f'unable to parse requirement: found "{text[at:]}"')
        at = match.end()
        if at < len(text) and text[at] != ",":
            raise errors.bad_request(
                f"unable to parse requirement: found '{text[at:]}', expected: ',' or end of string"
            )
        at += 1
    return tuple(requirements)


def matches(selector: Selector, labels: Mapping[str, str]) -> bool:
    """Whether every requirement matches."""
    return all(requirement.matches(labels) for requirement in selector)


_OPERATORS = {"In": "in", "NotIn": "notin", "Exists": "exists", "DoesNotExist": "absent"}


def parse_label_selector(selector: Mapping[str, Any] | None) -> Selector | None:
    """The requirements of a LabelSelector object; None, which matches nothing, without one.

    Raises:
        ApiError: 400, an unknown operator.
    """
    if selector is None:
        return None
    requirements = [Requirement(k, "in", frozenset((v,))) for k, v in (selector.get("matchLabels") or {}).items()]
    for expression in selector.get("matchExpressions") or []:
        operator = _OPERATORS.get(expression.get("operator"))
        if operator is None:
            raise errors.bad_request(f'"{expression.get("operator")}" is not a valid label selector operator')
        requirements.append(Requirement(expression["key"], operator, frozenset(expression.get("values") or ())))
    return tuple(requirements)


class FieldTerm(NamedTuple):
    """``field = value`` or ``field != value``."""

    field: str
    equal: bool
    value: str


_COMMON_FIELDS = frozenset(("metadata.name",))
_NAMESPACED_FIELDS = frozenset(("metadata.namespace",))
_FIELDS: dict[str, frozenset[str]] = {
    "pods": frozenset((
        "spec.nodeName", "spec.restartPolicy", "spec.schedulerName", "spec.serviceAccountName", "spec.hostNetwork",
        "status.phase", "status.podIP", "status.nominatedNodeName",
    )),
    "nodes": frozenset(("spec.unschedulable",)),
    "namespaces": frozenset(("status.phase",)),
    "secrets": frozenset(("type",)),
    "replicasets.apps": frozenset(("status.replicas",)),
    "resourceslices.resource.k8s.io": frozenset(("spec.nodeName", "spec.driver")),
    "jobs.batch": frozenset(("status.successful",)),
    "events": frozenset((
        "involvedObject.kind", "involvedObject.namespace", "involvedObject.name", "involvedObject.uid",
        "involvedObject.apiVersion", "involvedObject.resourceVersion", "involvedObject.fieldPath",
        "reason", "reportingComponent", "source", "type",
    )),
}  # fmt: skip


@functools.lru_cache(maxsize=1024)
def parse_fields(kind: Kind, text: str, selectable: tuple[str, ...] = ()) -> tuple[FieldTerm, ...]:
    """The terms of a ``fieldSelector`` parameter; ``selectable`` are a custom kind's own fields.

    Raises:
        ApiError: 400, the text is malformed, or the kind does not support the field.
    """
    common = _COMMON_FIELDS | _NAMESPACED_FIELDS if kind.namespaced else _COMMON_FIELDS
    supported = common | _FIELDS.get(kind.resource, frozenset()) | frozenset(selectable)
    terms: list[FieldTerm] = []
    for part in filter(None, (p.strip() for p in text.split(","))):
        match = re.fullmatch(r"([^=!]+)(==|=|!=)(.*)", part)
        if match is None:
            raise errors.bad_request(f"invalid field selector: '{part}'; can't understand '{part}'")
        name, sign, value = match.groups()
        if name not in supported:
            raise errors.bad_request(f"field label not supported: {name}")
        terms.append(FieldTerm(name, sign != "!=", value))
    return tuple(terms)


def field_value(obj: Mapping[str, Any], path: str) -> str:
    """The text that a field selector compares: empty for an absent field, ``true``/``false`` for booleans."""
    if path == "source":
        source = obj.get("source") or {}
        return str(source.get("component") or obj.get("reportingComponent") or "")
    value: Any = obj
    for part in path.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    if value is None:
        return "false" if path in {"spec.unschedulable", "spec.hostNetwork"} else ""
    return str(value).lower() if isinstance(value, bool) else str(value)


def fields_match(terms: tuple[FieldTerm, ...], obj: Mapping[str, Any]) -> bool:
    """Whether the object matches every term."""
    return all((field_value(obj, term.field) == term.value) == term.equal for term in terms)


def predicate(
    kind: Kind, labels: str, fields: str, selectable: tuple[str, ...] = ()
) -> Callable[[Mapping[str, Any]], bool] | None:
    """A function that tells whether an object matches both selectors; None if every object does.

    Raises:
        ApiError: 400, a selector is malformed.
    """
    by_labels, by_fields = parse_labels(labels), parse_fields(kind, fields, selectable)
    if not by_labels and not by_fields:
        return None

    def selects(obj: Mapping[str, Any]) -> bool:
        return fields_match(by_fields, obj) and matches(by_labels, obj["metadata"].get("labels") or {})

    return selects
