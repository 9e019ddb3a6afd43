"""IAM's policy evaluation: whether policies allow an action on a resource with given condition keys.

moto's enforcement checks actions only, neither the resources that a call creates nor conditions. Least privilege
depends on both, so policies are evaluated here by IAM's "policy evaluation logic". An unknown operator is an error, and
a missing condition key never allows a request.
"""

from __future__ import annotations

import fnmatch
import functools
import re
from typing import TYPE_CHECKING, Any

from shared.base.struct import Struct

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    Context = Mapping[str, Sequence[str]]

ANY = "*"


class PolicyError(ValueError):
    """A policy has an element that is not supported here; the text names it."""


class Request(Struct, kw_only=True):
    """One request to IAM. ``context`` has the values of each condition key.

    ``principal`` is the caller as resource policies name it: an ARN, or ``service:events.amazonaws.com``.
    """

    action: str
    resource: str
    context: Context = {}
    principal: str = ""

    def __str__(self) -> str:
        return f"{self.action} on {self.resource}"


class Statement(Struct, kw_only=True):
    """One statement of a policy, with all elements as lists."""

    effect: str
    actions: tuple[str, ...]
    resources: tuple[str, ...]
    conditions: Mapping[str, Mapping[str, Sequence[str]]]
    principals: tuple[str, ...] = ()
    sid: str = ""

    def matches(self, request: Request, *, by_resource: bool = False) -> bool:
        """Whether it matches the request. ``by_resource``: it is in a resource's policy, which names principals."""
        if by_resource and not any(_is_like(request.principal, principal) for principal in self.principals):
            return False
        return (
            any(_is_like(request.action.lower(), action.lower()) for action in self.actions)
            and any(_is_like(request.resource, resource) for resource in self.resources)
            and all(
                _condition_holds(operator, key, values, request.context)
                for operator, keys in self.conditions.items()
                for key, values in keys.items()
            )
        )


def parse(document: Mapping[str, Any]) -> tuple[Statement, ...]:
    """The statements of a policy document whose references are resolved.

    Raises:
        PolicyError: an element that is not supported, such as NotAction.
    """
    return tuple(_statement(statement) for statement in _as_list(document["Statement"]))


def allows(
    request: Request,
    *,
    identity: Iterable[Statement] = (),
    resource: Iterable[Statement] = (),
    same_account: bool = True,
) -> bool:
    """Whether the request is allowed: no statement denies it, and a policy allows it.

    Within an account, either policy is enough; for another account's principal, both must allow it. A service has no
    identity policy.
    """
    identity_matches = [statement for statement in identity if statement.matches(request)]
    resource_matches = [statement for statement in resource if statement.matches(request, by_resource=True)]
    if any(statement.effect == "Deny" for statement in (*identity_matches, *resource_matches)):
        return False
    if request.principal.startswith("service:"):
        return bool(resource_matches)
    if same_account:
        return bool(identity_matches or resource_matches)
    return bool(identity_matches and resource_matches)


_SUPPORTED_ELEMENTS = frozenset({"Sid", "Effect", "Action", "Resource", "Condition", "Principal"})


def _statement(element: Mapping[str, Any]) -> Statement:
    if unknown := element.keys() - _SUPPORTED_ELEMENTS:
        raise PolicyError(f"{', '.join(sorted(unknown))}: not supported here")
    return Statement(
        effect=str(element["Effect"]),
        actions=tuple(_as_list(element["Action"])),
        resources=tuple(_as_list(element.get("Resource", ANY))),
        conditions={
            operator: {key: tuple(str(value) for value in _as_list(values)) for key, values in keys.items()}
            for operator, keys in element.get("Condition", {}).items()
        },
        principals=_principals(element.get("Principal", ())),
        sid=str(element.get("Sid", "")),
    )


def _as_list(value: Any) -> Sequence[Any]:
    return value if isinstance(value, (list, tuple)) else (value,)


def _principals(element: Any) -> tuple[str, ...]:
    if element == ANY:
        return (ANY,)
    prefixes = {"AWS": "", "Service": "service:"}
    if not element:
        return ()
    return tuple(
        prefixes[type_] + principal for type_, principals in element.items() for principal in _as_list(principals)
    )


@functools.cache
def _pattern(pattern: str) -> re.Pattern[str]:
    # fnmatch also has character sets, which IAM doesn't: brackets are literal.
    return re.compile(fnmatch.translate(pattern.replace("[", "[[]")))


def _is_like(value: str, pattern: str) -> bool:
    return pattern == ANY or _pattern(pattern).match(value) is not None


def _equals(value: str, expected: str) -> bool:
    return value == expected


_OPERATORS: Mapping[str, Callable[[str, str], bool]] = {
    "StringEquals": _equals,
    "StringEqualsIgnoreCase": lambda value, expected: value.lower() == expected.lower(),
    "StringLike": _is_like,
    "ArnEquals": _is_like,  # the same as ArnLike, by IAM's documentation
    "ArnLike": _is_like,
    "Bool": lambda value, expected: value.lower() == expected.lower(),
    "NumericLessThan": lambda value, expected: float(value) < float(expected),
}
_MULTIVALUED = frozenset({"aws:tagkeys", "dynamodb:leadingkeys", "events:detail-type", "events:source"})
"""The keys, in lower case, that have several values by the service authorization reference (type ArrayOfString)."""
_NEGATED = {"StringNotEquals": _equals, "StringNotLike": _is_like, "ArnNotLike": _is_like, "ArnNotEquals": _is_like}


def _condition_holds(operator: str, key: str, expected: Sequence[str], context: Context) -> bool:
    """Whether one condition holds for the key's values.

    It fails for a missing key, unless it is negated or has IfExists or ForAllValues.
    """
    quantifier, _, name = operator.rpartition(":")
    present = next((values for known, values in context.items() if known.lower() == key.lower()), None)
    if name == "Null":
        return (present is None) == (expected[0].lower() == "true")
    optional = name.endswith("IfExists")
    name = name.removesuffix("IfExists")
    negated = name in _NEGATED
    test = _NEGATED.get(name) or _OPERATORS.get(name)
    if test is None or quantifier not in {"", "ForAllValues", "ForAnyValue"}:
        raise PolicyError(f"{operator}: this condition is not supported here")
    if present is None:
        return optional or (negated and not quantifier) or quantifier == "ForAllValues"
    results = [any(test(value, pattern) for pattern in expected) != negated for value in present]
    return _values_hold(quantifier, key, results)


def _values_hold(quantifier: str, key: str, results: Sequence[bool]) -> bool:
    """Whether the condition holds, by what holds for each value of the key."""
    if quantifier == "ForAnyValue":
        return any(results)
    if not quantifier and key.lower() in _MULTIVALUED:
        return False  # whether IAM matches one of the values is not documented
    return all(results)
