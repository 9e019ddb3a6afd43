"""Expressions in the part of CEL (Common Expression Language) that computes numbers.

Accepted are

- integers of 64 bits (``12``, ``0x1f``), doubles (``0.5``, ``1e3``), text (``"m5.large"``), ``true`` and ``false``;
- ``+ - * / %``, ``== != < <= > >=``, ``&& || !``, ``a ? b : c``, ``x in [a, b]`` and parentheses;
- the functions ``int(x)``, ``double(x)``, ``max(a, b)`` and ``min(a, b)`` of numbers, and of text
  ``startsWith("x")``, ``endsWith("x")`` and ``contains("x")``.

Types are checked before anything is evaluated, as in cel-go: an integer and a double don't mix, except in max and min.
Integer division truncates towards zero, and an integer beyond 64 bits is an error. Source: the CEL language definition.

Why not a library: the official one is 16 MB, and each of the others brings eight to twelve packages into four
functions' bundles for a parser of command lines, of times, or of regular expressions.
"""

from __future__ import annotations

import operator
import re
from typing import TYPE_CHECKING, Any

from shared.base.struct import Struct
from shared.instance_types.cel_arithmetic import (
    ARITHMETIC,
    BOOL,
    CONVERSIONS,
    DOUBLE,
    HIGHEST,
    INT,
    LEAST_OR_GREATEST,
    STRING,
    EvaluationError,
    int64,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Variables = Mapping[str, "int | str"]
    Run = Callable[[Variables], Any]


_MAX_LENGTH = 4096
_MAX_CONDITIONALS = 100
_MAX_NESTING = 40
_MAX_DEPTH = 200
_TOKEN = re.compile(
    r"""\s*(?:
    (?P<double>(?:\d+\.\d+|\.\d+)(?:[eE][+-]?\d+)?|\d+[eE][+-]?\d+)
    |(?P<int>0[xX][0-9a-fA-F]+|\d+)
    |(?P<string>"[^"\\\n]*"|'[^'\\\n]*')
    |(?P<name>[A-Za-z_][A-Za-z0-9_]*)
    |(?P<sign>&&|\|\||[<>=!]=|[-+*/%<>!?:()\[\],.])
    |(?P<end>$)
    )""",
    re.VERBOSE,
)
_COMPARISONS: Mapping[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_METHODS: Mapping[str, Callable[[str, str], bool]] = {
    "startsWith": str.startswith,
    "endsWith": str.endswith,
    "contains": operator.contains,
}


class CompileError(ValueError):
    """The text is not an expression of a number; the message says what is wrong, and where."""


class _Node(Struct):
    """A part of an expression: the type of its value, and how to get it."""

    kind: str
    run: Run
    depth: int = 1


class Expression(Struct):
    """A compiled expression whose value is an integer or a double."""

    text: str
    run: Run

    def evaluate(self, variables: Variables) -> int | float:
        """The value.

        Raises:
            EvaluationError: a division by zero, an integer beyond 64 bits, or a double that is no integer's.
        """
        value: int | float = self.run(variables)
        return value


def compile_expression(text: str, variables: Mapping[str, str]) -> Expression:
    """The expression of the text; ``variables`` has the type of each variable.

    >>> compile_expression("max(110, vcpus * 15)", {"vcpus": "int"}).evaluate({"vcpus": 16})
    240

    Raises:
        CompileError: the text is not an expression, has other variables, mixes types, or isn't a number.
    """
    if len(text) > _MAX_LENGTH:
        raise CompileError(f"has {len(text)} characters; allowed are at most {_MAX_LENGTH}")
    if text.count("?") > _MAX_CONDITIONALS:
        raise CompileError(f"has more than {_MAX_CONDITIONALS} conditionals")
    node = _Parser(text, variables).parse()
    if node.kind not in {INT, DOUBLE}:
        raise CompileError(f"is a {node.kind}; a number is needed")
    return Expression(text, node.run)


def _tokens(text: str) -> list[tuple[str, str, int]]:
    """The kind, text and column of each token, the end included."""
    tokens: list[tuple[str, str, int]] = []
    position = 0
    while not tokens or tokens[-1][0] != "end":
        match = _TOKEN.match(text, position)
        if match is None:
            column = position + len(text[position:]) - len(text[position:].lstrip())
            raise CompileError(f'"{text[column]}" at column {column + 1} is not part of an expression')
        kind = str(match.lastgroup)
        tokens.append((kind, match[kind], match.start(kind) + 1))
        position = match.end()
    return tokens


class _Parser:
    """Reads the tokens from left to right, one method for each level of precedence."""

    def __init__(self, text: str, variables: Mapping[str, str]) -> None:
        self._tokens = _tokens(text)
        self._variables = variables
        self._position = 0
        self._nesting = 0

    def parse(self) -> _Node:
        node = self._conditional()
        if self._kind != "end":
            raise self._unexpected()
        return node

    @property
    def _kind(self) -> str:
        return self._tokens[self._position][0]

    @property
    def _sign(self) -> str:
        kind, text, _ = self._tokens[self._position]
        return text if kind == "sign" or (kind, text) == ("name", "in") else ""

    def _next(self) -> str:
        text = self._tokens[self._position][1]
        self._position += 1
        return text

    def _expect(self, sign: str) -> None:
        if self._sign != sign:
            raise self._unexpected(f'"{sign}" is expected')
        self._position += 1

    def _unexpected(self, expected: str = "") -> CompileError:
        kind, text, column = self._tokens[self._position]
        where = "the end" if kind == "end" else f'"{text}" at column {column}'
        return CompileError(f"{where} is not expected" + (f"; {expected}" if expected else ""))

    def _mismatch(self, sign: str, *kinds: str) -> CompileError:
        return CompileError(f'"{sign}" doesn\'t take {" and ".join(kinds)}; convert numbers by int(x) or double(x)')

    def _node(self, kind: str, run: Run, *parts: _Node) -> _Node:
        depth = 1 + max((part.depth for part in parts), default=0)
        if depth > _MAX_DEPTH:
            raise CompileError(f"is nested more than {_MAX_DEPTH} deep")
        return _Node(kind, run, depth)

    def _conditional(self) -> _Node:
        test = self._either()
        if self._sign != "?":
            return test
        self._next()
        first = self._conditional()
        self._expect(":")
        second = self._conditional()
        if test.kind != BOOL or first.kind != second.kind:
            raise self._mismatch("? :", test.kind, first.kind, second.kind)
        check, yes, no = test.run, first.run, second.run
        return self._node(first.kind, lambda v: yes(v) if check(v) else no(v), test, first, second)

    def _either(self) -> _Node:
        return self._logical("||", self._both, decisive=True)

    def _both(self) -> _Node:
        return self._logical("&&", self._relation, decisive=False)

    def _logical(self, sign: str, operand: Callable[[], _Node], *, decisive: bool) -> _Node:
        left = operand()
        while self._sign == sign:
            self._next()
            right = operand()
            if (left.kind, right.kind) != (BOOL, BOOL):
                raise self._mismatch(sign, left.kind, right.kind)
            left = self._node(BOOL, _logical(left.run, right.run, decisive=decisive), left, right)
        return left

    def _relation(self) -> _Node:
        left = self._sum()
        while self._sign in _COMPARISONS or self._sign == "in":
            sign = self._next()
            if sign == "in":
                left = self._membership(left)
                continue
            right = self._sum()
            if left.kind != right.kind or (left.kind == BOOL and sign not in {"==", "!="}):
                raise self._mismatch(sign, left.kind, right.kind)
            left = self._node(BOOL, _binary(_COMPARISONS[sign], left.run, right.run), left, right)
        return left

    def _membership(self, left: _Node) -> _Node:
        self._expect("[")
        items = self._arguments("]")
        if any(item.kind != left.kind for item in items):
            raise self._mismatch("in", left.kind, *(item.kind for item in items))
        run, runs = left.run, [item.run for item in items]
        return self._node(BOOL, lambda v: run(v) in [item(v) for item in runs], left, *items)

    def _sum(self) -> _Node:
        return self._arithmetic(("+", "-"), self._product)

    def _product(self) -> _Node:
        return self._arithmetic(("*", "/", "%"), self._unary)

    def _arithmetic(self, signs: tuple[str, ...], operand: Callable[[], _Node]) -> _Node:
        left = operand()
        while self._sign in signs:
            sign = self._next()
            right = operand()
            if left.kind != right.kind or (left.kind, sign) not in ARITHMETIC:
                raise self._mismatch(sign, left.kind, right.kind)
            left = self._node(left.kind, _binary(ARITHMETIC[left.kind, sign], left.run, right.run), left, right)
        return left

    def _unary(self) -> _Node:
        if self._sign not in {"-", "!"}:
            return self._member()
        sign = self._next()
        self._enter()
        node = self._unary()
        self._nesting -= 1
        run = node.run
        if sign == "!" and node.kind == BOOL:
            return self._node(BOOL, lambda v: not run(v), node)
        if sign == "-" and node.kind == INT:
            return self._node(INT, lambda v: int64(-run(v)), node)
        if sign == "-" and node.kind == DOUBLE:
            return self._node(DOUBLE, lambda v: -run(v), node)
        raise self._mismatch(sign, node.kind)

    def _member(self) -> _Node:
        node = self._primary()
        while self._sign == ".":
            self._next()
            if self._kind != "name" or self._tokens[self._position][1] not in _METHODS:
                raise self._unexpected(f"known are {', '.join(_METHODS)}")
            name = self._next()
            self._expect("(")
            arguments = self._arguments(")")
            if [node.kind, *(a.kind for a in arguments)] != [STRING, STRING]:
                raise self._mismatch(name, node.kind, *(a.kind for a in arguments))
            node = self._node(BOOL, _binary(_METHODS[name], node.run, arguments[0].run), node, *arguments)
        return node

    def _primary(self) -> _Node:
        kind, sign = self._kind, self._sign
        if sign == "(":
            self._next()
            self._enter()
            node = self._conditional()
            self._expect(")")
            self._nesting -= 1
            return node
        if kind in _LITERALS:
            return self._literal(kind)
        if kind != "name" or sign:
            raise self._unexpected()
        name = self._next()
        if self._sign == "(":
            return self._call(name)
        if name in {"true", "false"}:
            value = name == "true"
            return self._node(BOOL, lambda _: value)
        if name not in self._variables:
            raise CompileError(f'"{name}" is unknown; known are {", ".join(self._variables)}')
        return self._node(self._variables[name], lambda v: v[name])

    def _literal(self, kind: str) -> _Node:
        _, text, column = self._tokens[self._position]
        value = _LITERALS[kind](text)
        if kind == INT and value > HIGHEST:
            raise CompileError(f"{text} at column {column} is beyond 64 bits")
        self._next()
        return self._node(kind, lambda _: value)

    def _call(self, name: str) -> _Node:
        self._next()
        arguments = self._arguments(")")
        kinds = tuple(a.kind for a in arguments)
        if name in LEAST_OR_GREATEST and len(kinds) == 2 and set(kinds) <= {INT, DOUBLE}:  # noqa: PLR2004 (a pair)
            return self._least_or_greatest(LEAST_OR_GREATEST[name], *arguments)
        if name in CONVERSIONS and kinds in {(INT,), (DOUBLE,)}:
            convert, run = CONVERSIONS[name], arguments[0].run
            return self._node(name, lambda v: convert(run(v)), *arguments)
        known = "int(x), double(x), max(a, b) and min(a, b) of numbers"
        raise CompileError(f"{name}({', '.join(kinds)}) is unknown; known are {known}")

    def _least_or_greatest(self, choose: Callable[[Any, Any], Any], first: _Node, second: _Node) -> _Node:
        a, b = first.run, second.run
        if first.kind == second.kind:
            return self._node(first.kind, lambda v: choose(a(v), b(v)), first, second)
        return self._node(DOUBLE, lambda v: choose(float(a(v)), float(b(v))), first, second)

    def _arguments(self, end: str) -> list[_Node]:
        """What is between the opening sign, which has been read, and the end; commas separate it."""
        arguments: list[_Node] = []
        self._enter()
        while self._sign != end:
            if arguments:
                self._expect(",")
            arguments.append(self._conditional())
        self._nesting -= 1
        self._next()
        return arguments

    def _enter(self) -> None:
        self._nesting += 1
        if self._nesting > _MAX_NESTING:
            raise CompileError(f"is nested more than {_MAX_NESTING} deep")


def _binary(apply: Callable[[Any, Any], Any], left: Run, right: Run) -> Run:
    return lambda v: apply(left(v), right(v))


def _logical(left: Run, right: Run, *, decisive: bool) -> Run:
    """``||`` (decided by true) or ``&&`` (by false): a side that decides hides the error of the other side."""

    def run(variables: Variables) -> bool:
        try:
            first: bool = left(variables)
        except EvaluationError:
            if bool(right(variables)) != decisive:
                raise
            return decisive
        return decisive if first == decisive else bool(right(variables))

    return run


_LITERALS: Mapping[str, Callable[[str], Any]] = {
    INT: lambda text: int(text, 16 if text[:2].lower() == "0x" else 10),
    DOUBLE: float,
    STRING: lambda text: text[1:-1],
}
