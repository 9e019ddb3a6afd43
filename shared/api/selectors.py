"""Label selectors and node selectors: which objects they match, and their text form.

Pods, workloads, budgets and the API's ``labelSelector`` parameter all select by the same rules (apimachinery
``labels.Selector``): without the key, only NotIn and DoesNotExist hold. Node selectors
add integer comparisons and ORed terms.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Protocol

from shared.api import kubernetes
from shared.api.labels import integer
from shared.api.meta import LabelSelector, LabelSelectorRequirement

if TYPE_CHECKING:
    from collections.abc import Mapping

    from shared.api.kubernetes import NodeSelector, NodeSelectorTerm

IN = "In"
NOT_IN = "NotIn"
EXISTS = "Exists"
DOES_NOT_EXIST = "DoesNotExist"
GT = "Gt"
LT = "Lt"
GTE = "Gte"
LTE = "Lte"
OPERATORS = kubernetes.OPERATORS
COMPARISONS = frozenset({GT, LT, GTE, LTE})

_TOKEN = re.compile(r"\s*(?:([A-Za-z0-9][-A-Za-z0-9_./]*)|(==|!=|=|!|\(|\)|,|<|>))")
_SYMBOLS = {"=": IN, "==": IN, "!=": NOT_IN, "in": IN, "notin": NOT_IN, ">": GT, "<": LT}
_WORDS = {IN: "in", NOT_IN: "notin", GT: ">", LT: "<"}


class SelectorError(ValueError):
    """The selector is invalid; the message names the text or operator and what is allowed."""


class Expression(Protocol):
    """``key operator values``, of a label selector or of a node selector."""

    @property
    def key(self) -> str:
        """The label's key."""
        ...

    @property
    def operator(self) -> str:
        """One of :data:`OPERATORS`."""
        ...

    @property
    def values(self) -> list[str]:
        """The values of the requirement."""
        ...


def matches(selector: LabelSelector | None, labels: Mapping[str, str]) -> bool:
    """Whether the labels are selected. No selector selects nothing, an empty one everything.

    >>> selector = parse_selector("app=web,tier!=db")
    >>> matches(selector, {"app": "web"}), matches(selector, {"app": "web", "tier": "db"})
    (True, False)

    Raises:
        SelectorError: an expression has an unknown operator.
    """
    if selector is None:
        return False
    for key, value in selector.match_labels.items():
        if labels.get(key) != value:
            return False
    return all(holds(expression, labels) for expression in selector.match_expressions)


def holds(expression: Expression, labels: Mapping[str, str]) -> bool:
    """Whether one expression holds for the labels.

    >>> at_least_eight = LabelSelectorRequirement(key="cpu", operator="Gte", values=["8"])
    >>> holds(at_least_eight, {"cpu": "16"}), holds(at_least_eight, {"cpu": "many"}), holds(at_least_eight, {})
    (True, False, False)

    Raises:
        SelectorError: the operator is unknown.
    """
    value = labels.get(expression.key)
    match expression.operator:
        case "In":
            return value is not None and value in expression.values
        case "NotIn":
            return value is None or value not in expression.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt" | "Gte" | "Lte":
            return value is not None and _compares(expression, value)
        case _:
            raise SelectorError(f'"{expression.operator}" is not an operator; allowed are {", ".join(OPERATORS)}')


def _compares(expression: Expression, value: str) -> bool:
    """Compares integers; other values match nothing, as in Kubernetes."""
    if len(expression.values) != 1:
        return False
    bound = integer(expression.values[0])
    actual = integer(value)
    if bound is None or actual is None:
        return False
    if expression.operator == GT:
        return actual > bound
    if expression.operator == LT:
        return actual < bound
    return actual >= bound if expression.operator == GTE else actual <= bound


def matches_term(term: NodeSelectorTerm, labels: Mapping[str, str], *, name: str = "") -> bool:
    """Whether a node with these labels and this name satisfies the term; a term without expressions matches nothing.

    ``metadata.name`` is the one field that Kubernetes knows in ``matchFields``.

    Raises:
        SelectorError: an expression has an unknown operator.
    """
    if not term.match_expressions and not term.match_fields:
        return False
    fields = {"metadata.name": name}
    return all(holds(expression, labels) for expression in term.match_expressions) and all(
        holds(expression, fields) for expression in term.match_fields
    )


def matches_node(selector: NodeSelector | None, labels: Mapping[str, str], *, name: str = "") -> bool:
    """Whether a node satisfies any term. No selector matches every node, one without terms none.

    Raises:
        SelectorError: an expression has an unknown operator.
    """
    if selector is None:
        return True
    return any(matches_term(term, labels, name=name) for term in selector.node_selector_terms)


def parse_selector(text: str) -> LabelSelector:
    """The selector of a text in kubectl's form: ``app=web,tier!=db,zone in (a,b),gpu,!spot,cpu>4``.

    The empty text selects everything. ``=`` becomes an expression, not ``matchLabels``, so ``a=1,a=2`` keeps both and
    matches nothing.

    Raises:
        SelectorError: the text is not a selector; the message shows where.
    """
    tokens = _tokens(text)
    expressions: list[LabelSelectorRequirement] = []
    while tokens:
        expressions.append(_expression(tokens, text))
        if not tokens:
            break
        if tokens.pop(0) != "," or not tokens:
            raise SelectorError(f'"{text}" is not a label selector: expressions are separated by one comma')
    return LabelSelector(match_expressions=expressions)


def _tokens(text: str) -> list[str]:
    tokens: list[str] = []
    rest = text.rstrip()
    at = 0
    while at < len(rest):
        match = _TOKEN.match(rest, at)
        if match is None:
            raise SelectorError(f'"{text}" is not a label selector: it can\'t be read from "{rest[at:].strip()}" on')
        tokens.append(match.group(1) or match.group(2))
        at = match.end()
    return tokens


def _is_word(token: str) -> bool:
    return token[0].isalnum()


def _expression(tokens: list[str], text: str) -> LabelSelectorRequirement:
    absent = tokens[0] == "!"
    if absent:
        tokens.pop(0)
    if not tokens or not _is_word(tokens[0]):
        raise SelectorError(f'"{text}" is not a label selector: a label\'s key is missing')
    key = tokens.pop(0)
    if absent:
        return LabelSelectorRequirement(key=key, operator=DOES_NOT_EXIST)
    if not tokens or tokens[0] == ",":
        return LabelSelectorRequirement(key=key, operator=EXISTS)
    symbol = tokens.pop(0)
    if symbol not in _SYMBOLS:
        raise SelectorError(f'"{text}" is not a label selector: "{symbol}" after "{key}" is not an operator')
    if symbol in {"in", "notin"}:
        values = _listed(tokens, text)
    else:
        values = [tokens.pop(0) if tokens and _is_word(tokens[0]) else ""]
    if symbol in {"<", ">"} and integer(values[0]) is None:
        raise SelectorError(f'"{text}" is not a label selector: "{key} {symbol}" needs an integer')
    return LabelSelectorRequirement(key=key, operator=_SYMBOLS[symbol], values=values)


def _listed(tokens: list[str], text: str) -> list[str]:
    """The values between parentheses; nothing between commas is the empty value, as in apimachinery."""
    if not tokens or tokens.pop(0) != "(" or ")" not in tokens:
        raise SelectorError(f'"{text}" is not a label selector: "in" and "notin" need values in parentheses')
    values: list[str] = []
    value: str | None = None
    while (part := tokens.pop(0)) != ")":
        if part == ",":
            values.append(value or "")
            value = None
        elif _is_word(part) and value is None:
            value = part
        else:
            raise SelectorError(f'"{text}" is not a label selector: "{part}" stands where a value belongs')
    values.append(value or "")
    return values


def format_selector(selector: LabelSelector) -> str:
    """The text of a selector, as :func:`parse_selector` reads it.

    >>> format_selector(LabelSelector(match_labels={"app": "web"}))
    'app=web'
    """
    parts = [f"{key}={value}" for key, value in sorted(selector.match_labels.items())]
    parts += [_text(expression) for expression in selector.match_expressions]
    return ",".join(parts)


def _text(expression: Expression) -> str:
    match expression.operator:
        case "Exists":
            return expression.key
        case "DoesNotExist":
            return f"!{expression.key}"
        case "Gt" | "Lt":
            return f"{expression.key}{_WORDS[expression.operator]}{expression.values[0]}"
        case "In" | "NotIn":
            return f"{expression.key} {_WORDS[expression.operator]} ({','.join(expression.values)})"
        case _:
            raise SelectorError(f'"{expression.operator}" has no text form in a label selector')
