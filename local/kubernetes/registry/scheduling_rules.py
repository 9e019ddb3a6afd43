"""The errors of what a pod's spec says about nodes: selectors, affinity, tolerations, spreading; and of taints.

Source: kubernetes ``pkg/apis/core/validation``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from local.kubernetes.registry import field_rules as rules

if TYPE_CHECKING:
    from collections.abc import Iterable

    from local.kubernetes.objects import Obj
    from local.kubernetes.registry.field_rules import Causes

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_POLICIES = ("Honor", "Ignore")
_WEIGHTS = range(1, 101)


def of_pod(spec: Obj, path: str) -> Causes:
    """The errors of a pod's spec about nodes and other pods."""
    affinity = spec.get("affinity") or {}
    yield from rules.labels(f"{path}.nodeSelector", spec.get("nodeSelector"))
    yield from _node_affinity(affinity.get("nodeAffinity") or {}, f"{path}.affinity.nodeAffinity")
    for kind in ("podAffinity", "podAntiAffinity"):
        yield from _pod_affinity(affinity.get(kind) or {}, f"{path}.affinity.{kind}")
    yield from spread_constraints(spec.get("topologySpreadConstraints") or [], f"{path}.topologySpreadConstraints")
    yield from tolerations(spec.get("tolerations") or (), f"{path}.tolerations")


def taints(all_taints: Iterable[Obj], path: str) -> Causes:
    """The errors of a node's taints."""
    seen = set()
    for index, taint in enumerate(all_taints):
        at, effect = f"{path}[{index}]", taint.get("effect", "")
        yield from rules.qualified_name(f"{at}.key", taint.get("key", ""))
        yield from rules.label_value(f"{at}.value", taint.get("value", ""))
        if effect:
            yield from rules.among(f"{at}.effect", effect, _EFFECTS)
        else:
            yield rules.required(f"{at}.effect")
        identity = (taint.get("key", ""), effect)
        if identity in seen:
            yield rules.duplicate(at, identity)
        seen.add(identity)


def tolerations(all_tolerations: Iterable[Obj], path: str) -> Causes:
    """The errors of tolerations."""
    for index, toleration in enumerate(all_tolerations):
        at = f"{path}[{index}]"
        key, operator = toleration.get("key", ""), toleration.get("operator", "")
        if key:
            yield from rules.qualified_name(f"{at}.key", key)
        elif operator != "Exists":
            text = 'operator must be Exists when `key` is empty, which means "match all values and all keys"'
            yield rules.invalid(f"{at}.operator", operator, text)
        if "tolerationSeconds" in toleration and toleration.get("effect") != "NoExecute":
            text = "effect must be 'NoExecute' when `tolerationSeconds` is set"
            yield rules.invalid(f"{at}.effect", toleration.get("effect", ""), text)
        yield from _toleration_operator(operator, toleration.get("value", ""), at)
        if effect := toleration.get("effect"):
            yield from rules.among(f"{at}.effect", effect, _EFFECTS)


def _toleration_operator(operator: str, value: str, path: str) -> Causes:
    if operator in {"Equal", ""}:
        if not rules.is_label_value(value):
            yield rules.invalid(f"{path}.operator", value, "a valid label value")
    elif operator == "Exists":
        if value:
            yield rules.invalid(f"{path}.operator", value, "value must be empty when `operator` is 'Exists'")
    else:  # Lt and Gt are behind a feature gate that is off
        yield rules.not_supported(f"{path}.operator", operator, ("Equal", "Exists"))


def node_selector(selector: Obj, path: str) -> Causes:
    """The errors of a required node selector."""
    terms = selector.get("nodeSelectorTerms") or []
    if not terms:
        yield rules.required(f"{path}.nodeSelectorTerms", "must have at least one node selector term")
    for index, term in enumerate(terms):
        yield from _node_term(term, f"{path}.nodeSelectorTerms[{index}]", with_values=True)


def _node_affinity(affinity: Obj, path: str) -> Causes:
    if _REQUIRED in affinity:
        yield from node_selector(affinity[_REQUIRED], f"{path}.{_REQUIRED}")
    for index, term in enumerate(affinity.get(_PREFERRED) or ()):
        at = f"{path}.{_PREFERRED}[{index}]"
        yield from _weight(term, at)
        yield from _node_term(term.get("preference") or {}, f"{at}.preference", with_values=False)


def _weight(term: Obj, path: str) -> Causes:
    if term.get("weight", 0) not in _WEIGHTS:
        yield rules.invalid(f"{path}.weight", term.get("weight", 0), "must be in the range 1-100")


def _node_term(term: Obj, path: str, *, with_values: bool) -> Causes:
    """The errors of a term; ``with_values`` if values must be those of labels."""
    for index, requirement in enumerate(term.get("matchExpressions") or ()):
        at = f"{path}.matchExpressions[{index}]"
        yield from _node_operator(requirement, at)
        yield from rules.qualified_name(f"{at}.key", requirement.get("key", ""))
        if with_values:
            for number, value in enumerate(requirement.get("values") or ()):
                yield from rules.label_value(f"{at}.values[{number}]", value)
    for index, requirement in enumerate(term.get("matchFields") or ()):
        yield from _node_field(requirement, f"{path}.matchFields[{index}]")


def _node_operator(requirement: Obj, path: str) -> Causes:
    values, operator = requirement.get("values") or (), requirement.get("operator", "")
    if operator in {"In", "NotIn"} and not values:
        yield rules.required(f"{path}.values", "must be specified when `operator` is 'In' or 'NotIn'")
    elif operator in {"Exists", "DoesNotExist"} and values:
        yield rules.forbidden(f"{path}.values", "may not be specified when `operator` is 'Exists' or 'DoesNotExist'")
    elif operator in {"Gt", "Lt"} and len(values) != 1:
        yield rules.required(f"{path}.values", "must be specified single value when `operator` is 'Lt' or 'Gt'")
    elif operator not in {"In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"}:
        yield rules.invalid(f"{path}.operator", operator, "not a valid selector operator")


def _node_field(requirement: Obj, path: str) -> Causes:
    values = requirement.get("values") or ()
    if requirement.get("operator", "") not in {"In", "NotIn"}:
        yield rules.invalid(f"{path}.operator", requirement.get("operator", ""), "not a valid selector operator")
    elif len(values) != 1:
        text = "must be only one value when `operator` is 'In' or 'NotIn' for node field selector"
        yield rules.required(f"{path}.values", text)
    if requirement.get("key", "") != "metadata.name":
        yield rules.invalid(f"{path}.key", requirement.get("key", ""), "not a valid field selector key")
        return
    for index, value in enumerate(values):
        yield from rules.subdomain(f"{path}.values[{index}]", value)


def _pod_affinity(affinity: Obj, path: str) -> Causes:
    for index, term in enumerate(affinity.get(_REQUIRED) or ()):
        yield from _pod_term(term, f"{path}.{_REQUIRED}[{index}]")
    for index, weighted in enumerate(affinity.get(_PREFERRED) or ()):
        at = f"{path}.{_PREFERRED}[{index}]"
        yield from _weight(weighted, at)
        yield from _pod_term(weighted.get("podAffinityTerm") or {}, f"{at}.podAffinityTerm")


def _pod_term(term: Obj, path: str) -> Causes:
    yield from rules.label_selector(f"{path}.labelSelector", term.get("labelSelector"))
    yield from rules.label_selector(f"{path}.namespaceSelector", term.get("namespaceSelector"))
    for name in term.get("namespaces") or ():
        yield from rules.dns_label(f"{path}.namespace", name)
    yield from _label_keys(term, path)
    key = term.get("topologyKey", "")
    if not key:
        yield rules.required(f"{path}.topologyKey", "can not be empty")
    yield from rules.qualified_name(f"{path}.topologyKey", key)


def _label_keys(term: Obj, path: str) -> Causes:
    """The errors of matchLabelKeys and mismatchLabelKeys."""
    selector = term.get("labelSelector")
    for name in ("matchLabelKeys", "mismatchLabelKeys"):
        keys = term.get(name) or ()
        if keys and selector is None:
            yield rules.forbidden(f"{path}.{name}", "must not be specified when labelSelector is not set")
            continue
        for index, key in enumerate(keys):
            yield from rules.qualified_name(f"{path}.{name}[{index}]", key)
    matched = term.get("matchLabelKeys") or []
    yield from _repeated_label_keys(matched, selector or {}, path)
    for index, key in enumerate(matched):
        if key in (term.get("mismatchLabelKeys") or ()):
            text = "exists in both matchLabelKeys and mismatchLabelKeys"
            yield rules.invalid(f"{path}.matchLabelKeys[{index}]", key, text)


def _repeated_label_keys(matched: list[str], selector: Obj, path: str) -> Causes:
    seen = set(selector.get("matchLabels") or {})
    for requirement in selector.get("matchExpressions") or ():
        key = requirement.get("key", "")
        if key in matched and key in seen:
            last = len(matched) - 1 - matched[::-1].index(key)
            yield rules.invalid(f"{path}[{last}]", key, "exists in both matchLabelKeys and labelSelector")
        seen.add(key)


def spread_constraints(constraints: list[Obj], path: str) -> Causes:
    """The errors of topology spread constraints."""
    for index, constraint in enumerate(constraints):
        at = f"{path}[{index}]"
        action = constraint.get("whenUnsatisfiable", "")
        yield from rules.positive(f"{at}.maxSkew", constraint.get("maxSkew", 0))
        if not constraint.get("topologyKey"):
            yield rules.required(f"{at}.topologyKey", "can not be empty")
        yield from rules.among(f"{at}.whenUnsatisfiable", action, ("DoNotSchedule", "ScheduleAnyway"))
        identity = (constraint.get("topologyKey", ""), action)
        if identity in [(c.get("topologyKey", ""), c.get("whenUnsatisfiable", "")) for c in constraints[index + 1 :]]:
            yield rules.duplicate(f"{at}.{{topologyKey, whenUnsatisfiable}}", f"{{{identity[0]}, {identity[1]}}}")
        if (least := constraint.get("minDomains")) is not None:
            yield from rules.positive(f"{at}.minDomains", least)
            if action != "DoNotSchedule":
                text = f"can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {action}"
                yield rules.invalid(f"{at}.minDomains", least, text)
        for name in ("nodeAffinityPolicy", "nodeTaintsPolicy"):
            yield from rules.among(f"{at}.{name}", constraint.get(name), _POLICIES)
        yield from _label_keys(constraint, at)
        yield from rules.label_selector(f"{at}.labelSelector", constraint.get("labelSelector"))


def topologies(terms: Iterable[Obj], path: str) -> Causes:
    """The errors of a StorageClass's allowed topologies."""
    seen: list[dict[str, set[str]]] = [{}] if terms else []  # an empty term counts as repeated
    for index, term in enumerate(terms):
        at = f"{path}[{index}].matchLabelExpressions"
        values_by_key: dict[str, set[str]] = {}
        for number, requirement in enumerate(term.get("matchLabelExpressions") or ()):
            key, values = requirement.get("key", ""), requirement.get("values") or []
            if not values:
                yield rules.required(f"{at}[{number}].values")
            for place, value in enumerate(values):
                if value in values[:place]:
                    yield rules.duplicate(f"{at}[{number}].values[{place}]", value)
            yield from rules.qualified_name(f"{at}[{number}].key", key)
            if key in values_by_key:
                yield rules.duplicate(f"{at}[{number}].key", key)
            values_by_key[key] = set(values)
        if values_by_key in seen:
            yield rules.duplicate(at, "")
        seen.append(values_by_key)
