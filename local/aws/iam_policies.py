"""IAM's decision: whether policies allow an action on a resource in a context, and by which statement.

moto's own enforcement looks at actions only: not at resources that a call makes, and at no condition. Least privilege
is in exactly those, so the decision is made here, as IAM's "policy evaluation logic" has it. What isn't known here (an
operator, a key that a request doesn't carry) is an error or a no, never a yes.
"""

from __future__ import annotations

import fnmatch
import functools
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    Context = Mapping[str, Sequence[str]]

ANY = "*"


class PolicyError(ValueError):
    """A policy says what isn't understood here; the text names it."""


@dataclass(frozen=True, kw_only=True)
class Request:
    """One thing asked of IAM. ``context`` is the condition keys' values; a key with one value is a list of one.

    ``principal`` is who asks, as resource policies name them: an ARN, or ``service:events.amazonaws.com``.
    """

    action: str
    resource: str
    context: Context = field(default_factory=dict)
    principal: str = ""

    def __str__(self) -> str:
        return f"{self.action} on {self.resource}"


@dataclass(frozen=True, kw_only=True)
class Statement:
    """One statement of a policy, with lists for what may be one or many."""

    effect: str
    actions: tuple[str, ...]
    resources: tuple[str, ...]
    conditions: Mapping[str, Mapping[str, Sequence[str]]]
    principals: tuple[str, ...] = ()
    sid: str = ""

    def fits(self, request: Request, *, by_resource: bool = False) -> bool:
        """Whether it is about that request. ``by_resource``: it is in a resource's policy, which names principals."""
        if by_resource and not any(_is_like(request.principal, one) for one in self.principals):
            return False
        return (
            any(_is_like(request.action.lower(), action.lower()) for action in self.actions)
            and any(_is_like(request.resource, resource) for resource in self.resources)
            and all(
                _holds(operator, key, values, request.context)
                for operator, keys in self.conditions.items()
                for key, values in keys.items()
            )
        )


def parse(document: Mapping[str, Any]) -> tuple[Statement, ...]:
    """The statements of a policy document whose references are resolved.

    Raises:
        PolicyError: an element that isn't understood, such as NotAction.
    """
    return tuple(_statement(one) for one in _many(document["Statement"]))


def allows(
    request: Request,
    *,
    identity: Iterable[Statement] = (),
    resource: Iterable[Statement] = (),
    same_account: bool = True,
) -> bool:
    """Whether the request may be done: nothing denies it, and a policy allows it.

    Within an account the policy of either side is enough; for another account's principal both must say yes, and a
    service has no policy of its own.
    """
    own = [statement for statement in identity if statement.fits(request)]
    of_resource = [statement for statement in resource if statement.fits(request, by_resource=True)]
    if any(statement.effect == "Deny" for statement in (*own, *of_resource)):
        return False
    if request.principal.startswith("service:"):
        return bool(of_resource)
    return bool(own or of_resource) if same_account else bool(own and of_resource)


_KNOWN = frozenset({"Sid", "Effect", "Action", "Resource", "Condition", "Principal"})


def _statement(one: Mapping[str, Any]) -> Statement:
    if unknown := one.keys() - _KNOWN:
        raise PolicyError(f"{', '.join(sorted(unknown))}: not understood here")
    return Statement(
        effect=str(one["Effect"]),
        actions=tuple(_many(one["Action"])),
        resources=tuple(_many(one.get("Resource", ANY))),
        conditions={
            operator: {key: tuple(str(value) for value in _many(values)) for key, values in keys.items()}
            for operator, keys in one.get("Condition", {}).items()
        },
        principals=_principals(one.get("Principal", ())),
        sid=str(one.get("Sid", "")),
    )


def _many(value: Any) -> Sequence[Any]:  # noqa: ANN401 - IAM's: one, or a list of them
    return value if isinstance(value, (list, tuple)) else (value,)


def _principals(named: Any) -> tuple[str, ...]:  # noqa: ANN401 - "*", or a map of lists
    if named == ANY:
        return (ANY,)
    kinds = {"AWS": "", "Service": "service:"}
    if not named:
        return ()
    return tuple(kinds[kind] + one for kind, ones in named.items() for one in _many(ones))


@functools.cache
def _pattern(pattern: str) -> re.Pattern[str]:
    # fnmatch also knows sets, which IAM doesn't: their brackets are meant as they are.
    return re.compile(fnmatch.translate(pattern.replace("[", "[[]")))


def _is_like(value: str, pattern: str) -> bool:
    return pattern == ANY or _pattern(pattern).match(value) is not None


def _equals(value: str, wanted: str) -> bool:
    return value == wanted


_OPERATORS: Mapping[str, Callable[[str, str], bool]] = {
    "StringEquals": _equals,
    "StringEqualsIgnoreCase": lambda value, wanted: value.lower() == wanted.lower(),
    "StringLike": _is_like,
    "ArnEquals": _is_like,  # the same as ArnLike, by IAM's own word
    "ArnLike": _is_like,
    "Bool": lambda value, wanted: value.lower() == wanted.lower(),
    "NumericLessThan": lambda value, wanted: float(value) < float(wanted),
}
_NEGATED = {"StringNotEquals": _equals, "StringNotLike": _is_like, "ArnNotLike": _is_like, "ArnNotEquals": _is_like}


def _holds(operator: str, key: str, wanted: Sequence[str], context: Context) -> bool:
    """One condition: the key's values against what is wanted.

    A key that the request lacks fails a condition, unless it is negated, says IfExists, or is of ForAllValues.
    """
    quantifier, _, name = operator.rpartition(":")
    present = next((values for known, values in context.items() if known.lower() == key.lower()), None)
    if name == "Null":
        return (present is None) == (wanted[0].lower() == "true")
    optional = name.endswith("IfExists")
    name = name.removesuffix("IfExists")
    negated = name in _NEGATED
    test = _NEGATED.get(name) or _OPERATORS.get(name)
    if test is None or quantifier not in {"", "ForAllValues", "ForAnyValue"}:
        raise PolicyError(f"{operator}: this condition is not understood here")
    if present is None:
        return optional or (negated and not quantifier) or quantifier == "ForAllValues"
    hits = [any(test(value, one) for one in wanted) != negated for value in present]
    return any(hits) if quantifier == "ForAnyValue" else all(hits)
