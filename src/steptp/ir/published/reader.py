"""Text in the published notation → syntax tree. The grammar is in ``docs/published-notation.md``; text is parsed, never evaluated."""

from __future__ import annotations

import math
from difflib import get_close_matches
from typing import NoReturn

from steptp.errors import LeirError
from steptp.ir.published.lexer import Token, tokenize
from steptp.ir.published.tree import Access, Binary, Call, LoopHead, Name, Nest, Number, Span, Statement, Term, Text, Unary

__all__ = ["read_tree", "too_deep", "FUNCTIONS", "DTYPES", "SCOPES", "KINDS"]

FUNCTIONS = {
    "if_then_else": 3, "max": 2, "min": 2, "exp": 1, "log": 1, "sqrt": 1, "rsqrt": 1, "erf": 1, "tanh": 1, "abs": 1, "sin": 1, "cos": 1, "floor": 1,
    "ceil": 1, "pow": 2,
}  # fmt: skip
"""Functions and how many arguments they take (``max`` and ``min``: at least)."""
DTYPES = ("f16", "bf16", "f32", "f64", "i8", "i32", "i64", "bool")
SCOPES = ("g", "s", "l")
KINDS = "LPVBU"
_MAX_DEPTH, _MAX_LINKS = 100, 400
_COMPARE = frozenset({"<", "<=", ">", ">=", "==", "!="})
_NUMBERS = {"inf": math.inf, "nan": math.nan}
_NEST = "nests look like L^{16}_{a=0}[C^{f32,g}_{a}=A^{f32,g}_{a};];"


def read_tree(source: str, filename: str = "<published>") -> Text:
    """Parse a program; raises :class:`LeirError` with codes ``syntax-*``."""
    text = Text((), source, filename)
    try:
        return Text(_Reader(text, tokenize(text)).program(), source, filename)
    except RecursionError:
        raise too_deep(text) from None


def too_deep(text: Text) -> LeirError:
    """The error for a text whose trees are too high to be walked here."""
    return text.error("syntax-depth", "the text nests too deeply to be read here", (0, 1))


class _Reader:
    def __init__(self, text: Text, tokens: list[Token]) -> None:
        self.text = text
        self.tokens = tokens
        self.at = 0
        self.depth = 0
        self.links = 0  # operators of the present statement
        self.vars: set[str] = set()

    # helpers

    @property
    def token(self) -> Token:
        return self.tokens[self.at]

    @property
    def kind(self) -> str:
        return self.tokens[self.at].kind

    def fail(self, message: str, hint: str = "", code: str = "syntax-expected", span: Span | None = None) -> NoReturn:
        error: LeirError = self.text.error(code, message, span or self.token.span, hint)
        raise error

    def found(self) -> str:
        return "the end of the text" if self.kind == "end" else repr(self.token.text)

    def expect(self, kind: str, after: str, hint: str = "") -> Token:
        if self.kind != kind:
            what = {"name": "a name", "num": "a number"}.get(kind, repr(kind))
            self.fail(f"expected {what} after {after}, found {self.found()}", hint)
        self.at += 1
        return self.tokens[self.at - 1]

    def since(self, start: int) -> Span:
        """The span from token ``start`` to the last one read."""
        first, last = self.tokens[start].span, self.tokens[self.at - 1].span
        return first[0], last[0] + last[1] - first[0]

    # nests

    def program(self) -> tuple[Nest, ...]:
        out: list[Nest] = []
        while self.kind != "end":
            out.append(self.nest())
        if not out:
            self.fail("the text holds no nest", _NEST)
        return tuple(out)

    def nest(self) -> Nest:
        start = self.at
        loops: list[LoopHead] = []
        while self.kind == "name":
            loops.append(self.loop([h.var for h in loops]))
        self.vars = {h.var for h in loops}
        self.expect("[", "the loops" if loops else "the start of a nest", _NEST)
        rows: list[Statement] = []
        while self.kind != "]":
            rows.append(self.statement())
        if not rows:
            self.fail("a nest without a statement", _NEST)
        self.at += 1
        if self.kind != "end":
            self.expect(";", "the ']' of a nest", "every nest ends with ';'")
        return Nest(tuple(loops), tuple(rows), self.since(start))

    def loop(self, outer: list[str]) -> LoopHead:
        start = self.at
        kind = self.token.text
        if kind not in KINDS or len(kind) != 1:
            self.fail(f"no loop kind {kind}", "kinds: L serial, P parallel, V vectorised, B bound to a GPU axis, U unrolled", "syntax-loop")
        self.at += 1
        shape = f"loops look like {kind}^{{16}}_{{a=0}}"
        self.expect("^", "the loop kind", shape)
        self.expect("{", "'^'", shape)
        extent = self.expect("num", f"'{kind}^{{'", "extents are whole numbers")
        if not extent.text.isdigit() or not 0 < int(extent.text) < 1 << 63:
            self.fail(f"{extent.text} is not an extent", "extents are whole numbers of at least 1", "syntax-extent", extent.span)
        for sign in ("}", "_", "{"):
            self.expect(sign, "the extent", shape)
        var = self.expect("name", "the extent", shape)
        if var.text in outer:
            self.fail(f"loop variable {var.text} is already used by a loop around this one", "", "check-name", var.span)
        self.expect("=", f"loop variable {var.text}", shape)
        first = self.expect("num", f"'{var.text}='", shape)
        if first.text != "0":
            self.fail(f"loop {var.text} starts at {first.text}; loops start at 0", "shift the indices instead", "syntax-loop", first.span)
        self.expect("}", "the start of the loop", shape)
        return LoopHead(kind, int(extent.text), var.text, self.since(start))

    def statement(self) -> Statement:
        start = self.at
        if self.kind != "name":
            self.fail(f"expected a statement, found {self.found()}", "statements look like C^{f32,g}_{a}=A^{f32,g}_{a};")
        self.links = 0
        target = self.atom()
        if not isinstance(target, Access):
            self.fail("only a tensor can be assigned", "statements look like C^{f32,g}_{a}=A^{f32,g}_{a};", span=target.span)
        self.expect("=", f"the target {target.name}")
        value = self.term()
        span = self.since(start)
        if self.kind != "]":
            self.expect(";", "the statement", "statements end with ';'")
        return Statement(target, value, span)

    # terms, loosest first: '&', comparisons, '+ -', '* / // %', unary, '**'

    def term(self) -> Term:
        self.depth += 1
        if self.depth > _MAX_DEPTH:
            self.fail(f"an expression nests deeper than {_MAX_DEPTH} levels", code="syntax-depth")
        start = self.at
        left = self.comparison()
        while self.kind == "&":
            self.at += 1
            self.chained(start)
            right = self.comparison()
            left = Binary("&", left, right, self.since(start))
        self.depth -= 1
        return left

    def chained(self, start: int) -> None:
        """Refuse a row of operators that would make too high a tree."""
        self.links += 1
        if self.links > _MAX_LINKS:
            self.fail(f"more than {_MAX_LINKS} operators in one statement", "split it with a tensor of its own", "syntax-depth", self.since(start))

    def comparison(self) -> Term:
        start = self.at
        left = self.sum()
        found: Term | None = None
        last = ""
        while self.kind in _COMPARE:
            op, here = self.kind, self.at
            self.at += 1
            right = self.sum()
            if found is not None and not {op, last} <= {"<", "<="} and not {op, last} <= {">", ">="}:
                self.fail("comparisons chain only in one direction", "write a<b<=c, or join two conditions by '&'", span=self.tokens[here].span)
            made = Binary(op, left, right, self.since(start))
            found = made if found is None else Binary("&", found, made, self.since(start))
            left, last = right, op
        return left if found is None else found

    def sum(self) -> Term:
        start = self.at
        left = self.product()
        while self.kind in ("+", "-"):
            op = self.kind
            self.at += 1
            self.chained(start)
            left = Binary(op, left, self.product(), self.since(start))
        return left

    def product(self) -> Term:
        start = self.at
        left = self.unary()
        while self.kind in ("*", "/", "//", "%"):
            op = self.kind
            self.at += 1
            self.chained(start)
            left = Binary(op, left, self.unary(), self.since(start))
        return left

    def unary(self) -> Term:
        if self.kind not in ("-", "+"):
            return self.power()
        start, op = self.at, self.kind
        self.at += 1
        self.depth += 1
        if self.depth > _MAX_DEPTH:
            self.fail(f"an expression nests deeper than {_MAX_DEPTH} levels", code="syntax-depth")
        arg = self.unary()
        self.depth -= 1
        if op == "-" and isinstance(arg, Number):
            return Number(-arg.value, self.since(start))
        return Unary(op, arg, self.since(start)) if op == "-" else arg

    def power(self) -> Term:
        start = self.at
        left = self.atom()
        if self.kind != "**":
            return left
        self.at += 1
        self.chained(start)
        right = self.unary()  # to the right, and 2**-1 has its sign inside
        return Binary("**", left, right, self.since(start))

    def atom(self) -> Term:
        start, token = self.at, self.token
        self.at += 1
        if token.kind == "num":
            return Number(int(token.text) if token.text.isdigit() else float(token.text), token.span)
        if token.kind == "(":
            inner = self.term()
            self.expect(")", "the expression in parentheses")
            return inner
        if token.kind != "name":
            self.at = start
            self.fail(f"expected an expression, found {self.found()}")
        if self.kind == "^":
            return self.access(token, start)
        if self.kind == "(":
            return self.call(token, start)
        if token.text in _NUMBERS and token.text not in self.vars:
            return Number(_NUMBERS[token.text], token.span)
        if token.text not in self.vars:
            known = f"loop variables here: {', '.join(sorted(self.vars))}" if self.vars else "there is no loop around this"
            self.fail(f"no loop variable {token.text}", f"{known}; a tensor is written {token.text}^{{f32,g}}", "check-view", token.span)
        return Name(token.text, token.span)

    def access(self, name: Token, start: int) -> Access:
        shape = f"tensors look like {name.text}^{{f16,g}}_{{a,b}}"
        self.at += 1
        self.expect("{", "'^'", shape)
        dtype = self.expect("name", f"'{name.text}^{{'", shape)
        if dtype.text not in DTYPES:
            near = get_close_matches(dtype.text, DTYPES, 1)
            hint = f"did you mean {near[0]}?" if near else f"dtypes: {', '.join(DTYPES)}"
            self.fail(f"no dtype named {dtype.text}", hint, "type-dtype", dtype.span)
        self.expect(",", "the dtype", shape)
        scope = self.expect("name", "the dtype", shape)
        if scope.text not in SCOPES:
            self.fail(f"no scope named {scope.text}", "scopes: g global, s shared, l local", "syntax-scope", scope.span)
        self.expect("}", "the scope", shape)
        indices: list[Term] = []
        if self.kind == "_":
            self.at += 1
            self.expect("{", "'_'", shape)
            while self.kind != "}":
                indices.append(self.term())
                if self.kind != "}":
                    self.expect(",", "an index", shape)
            self.at += 1
        return Access(name.text, dtype.text, scope.text, tuple(indices), self.since(start), name.span)

    def call(self, name: Token, start: int) -> Call:
        arity = FUNCTIONS.get(name.text)
        if arity is None:
            near = get_close_matches(name.text, FUNCTIONS, 1)
            hint = f"did you mean {near[0]}?" if near else f"functions: {', '.join(FUNCTIONS)}"
            self.fail(f"no function named {name.text}", hint, "syntax-function", name.span)
        self.at += 1
        args = [self.term()]
        while self.kind == ",":
            self.at += 1
            args.append(self.term())
        self.expect(")", f"the arguments of {name.text}")
        if len(args) != arity and not (name.text in ("max", "min") and len(args) > 2):
            self.fail(f"{name.text} takes {arity} argument(s), got {len(args)}", code="syntax-function", span=self.since(start))
        return Call(name.text, tuple(args), self.since(start))
