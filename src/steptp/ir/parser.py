"""LEIR text → program. The grammar is in ``docs/leir.md``; text is parsed, never evaluated."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TypeAlias, Union

from steptp.errors import LeirError, Place
from steptp.ir.checks import check
from steptp.ir.checks_exprs import MAX_NEST
from steptp.ir.exprparser import DTYPES, ExprParser, suggest
from steptp.ir.extents import indexed_dimensions
from steptp.ir.lexer import MAX_NAME, RESERVED, Tokens, tokenize
from steptp.ir.nodes import Body, Buffer, Expr, If, Loop, Path, Program, Size, SizeDecl, Stmt, Store, Var
from steptp.ir.ops import REDUCERS
from steptp.ir.printer import print_expr
from steptp.ir.sizes import eval_index
from steptp.ir.sourcemap import SourceMap
from steptp.ir.types import DType, LoopKind, Scope, looks_like_dtype
from steptp.ir.walk import buffer_table

__all__ = ["parse", "parse_expr", "parse_unchecked", "place_of"]

_LOOPS = {k.value: k for k in LoopKind}
_SCOPES = {s.value: s for s in Scope if s is not Scope.GLOBAL}
_ASSIGN: dict[str, str | None] = {"=": None, **{row.token: name for name, row in REDUCERS.items()}}
_HEADER = ("size", "in", "out", "tmp")
_AFTER_LOW = frozenset({"..", "+", "-", "*", "//", "%", "("})
_STATEMENT_HINT = "statements look like: for i j X[i,j]=Y[j,i]"


@dataclass(frozen=True, slots=True)
class _LoopHead:
    kind: LoopKind
    var: str
    extent: Expr | None  # left out: the dimension that the variable indexes
    at: int


_Head: TypeAlias = Union[_LoopHead, Expr]  # a loop, or the condition of a guard


def parse(text: str, filename: str = "<leir>") -> Program:
    """Read a program; what comes back is valid (:func:`steptp.ir.check`).

    Raises :class:`LeirError` with codes ``syntax-*``, ``type-*`` or ``check-*`` and the place in the text.
    """
    program = parse_unchecked(text, filename)
    check(program)
    return program


def parse_unchecked(text: str, filename: str = "<leir>") -> Program:
    """Read a program without running the validity table: names, ranks and dtypes are right, the rest may not be."""
    tokens = tokenize(text, filename)
    try:
        return _Parser(tokens).program()
    except RecursionError:
        raise LeirError("syntax-depth", "the text nests too deeply to be read here", place=tokens.place(0)) from None


def parse_expr(text: str, program: Program, loop_vars: Iterable[str] = (), expected: DType | None = None, filename: str = "<expr>") -> Expr:
    """Read one expression over the sizes and buffers of ``program`` and the given loop variables.

    ``expected`` is the dtype that bare literals take when nothing else gives one; it is not enforced on the result.
    Raises :class:`LeirError` as :func:`parse` does.
    """
    parser = _Parser(tokenize(text, filename))
    parser.names.update({s.name: Size(s.name) for s in program.sizes})
    parser.names.update({v: Var(v) for v in loop_vars})
    parser.buffers.update(buffer_table(program))
    try:
        expr = parser.value(expected)
    except RecursionError:
        raise LeirError("syntax-depth", "the text nests too deeply to be read here", place=parser.tokens.place(0)) from None
    parser.end_of_line("the expression")
    if parser.kinds[parser.pos] != "eof":
        parser.fail("syntax-expected", "expected one expression", parser.pos)
    return expr


class _Parser(ExprParser):
    def __init__(self, tokens: Tokens) -> None:
        super().__init__(tokens)
        self.sizes: dict[str, int] = {}
        self.spans: dict[Path, tuple[int, int]] = {}
        self.declared: dict[str, int] = {}  # sizes and buffers → token of the declaration
        self.level = 0
        self.dtype: DType | None = None  # of the declaration before
        self.size_decls: list[SizeDecl] = []
        self.shapes: dict[str, tuple[Expr, ...]] = {}

    # header

    def program(self) -> Program:
        constraints: tuple[Expr, ...] = ()
        groups: dict[str, tuple[Buffer, ...]] = {}
        done = -1
        seen: set[str] = set()
        while (word := self.kinds[self.pos]) in _HEADER or word == "where":
            place = done if word == "where" else _HEADER.index(word)  # constraints may stand on any header line
            if word in seen or place < done:
                message = f"a second '{word}' line" if word in seen else f"'{word}' stands after '{_HEADER[done]}'"
                self.fail("syntax-order", message, self.pos, hint="the order is size, in, out, tmp, one line each, and one 'where' line")
            done = place
            seen.add(word)
            self.pos += 1
            if word == "size":
                self._sizes()
            elif word == "where":
                constraints = self._constraints()
            else:
                groups[word] = self._declarations(word)
            self.end_of_line(f"the '{word}' line")
        body = self._block(())
        if self.kinds[self.pos] != "eof":
            self.fail("syntax-indent", "this indentation matches no open block", self.pos)
        program = Program(tuple(self.size_decls), groups.get("in", ()), groups.get("out", ()), body, groups.get("tmp", ()), constraints)
        where = {name: (at, at + 1) for name, at in self.declared.items()}
        program._cache["source"] = SourceMap(self.tokens.source, self.tokens.filename, self._offsets(self.spans), self._offsets(where))
        return program

    def _offsets(self, spans: dict[Path, tuple[int, int]] | dict[str, tuple[int, int]]) -> dict[Path | str, tuple[int, int]]:
        offsets, texts = self.tokens.offsets, self.texts
        return {key: (offsets[a], offsets[b - 1] + len(texts[b - 1]) - offsets[a]) for key, (a, b) in spans.items()}

    def end_of_line(self, after: str) -> None:
        if self.kinds[self.pos] == "eof":
            return
        if self.kinds[self.pos] != "newline":
            hint = "separate declarations with blanks" if self.kinds[self.pos] == "," else ""
            self.fail("syntax-expected", f"expected the end of the line after {after}, found {self.found()}", self.pos, hint=hint)
        self.pos += 1

    def new_name(self, what: str) -> str:
        """The name at ``pos``, checked to be legal and new."""
        at, text = self.pos, self.texts[self.pos]
        if text in RESERVED:
            self.fail("check-name", f"{text} is reserved and cannot name {what}", at)
        if self.kinds[at] != "name":
            self.fail("syntax-expected", f"expected the name of {what}, found {self.found()}", at)
        if text in self.declared:
            line = self.tokens.place(self.declared[text]).line
            self.fail("check-name", f"{text} is already declared in line {line}", at, hint="every name stands for one thing")
        if text in self.names:
            self.fail("check-name", f"{text} is already a loop variable around this place", at)
        assert len(text) <= MAX_NAME
        self.pos += 1
        return text

    def _sizes(self) -> None:
        while self.kinds[self.pos] not in ("newline", "eof", ","):
            self._size()
        if not self.size_decls:
            self.fail("syntax-expected", "expected a size after 'size'", self.pos, hint="sizes look like N=64")

    def _size(self) -> Size:
        at = self.pos
        name = self.new_name("a size")
        self.expect("=", f"the name of size {name}", hint="sizes look like N=64")
        start = self.pos
        expr = self.index(f"size {name}")
        plain = self.pos == start + 1 and self.kinds[start] == "num"
        try:
            value = eval_index(expr, self.sizes)
        except LeirError as err:
            self.fail(err.code, err.message, start, self.pos)
        if value < 0 or value >= 1 << 63:
            self.fail("check-size", f"size {name} is {value if abs(value) < 1 << 64 else 'huge'}: a size is between 0 and 2^63-1", start, self.pos)
        self.size_decls.append(SizeDecl(name, value, None if plain else expr))
        self.sizes[name] = value
        self.names[name] = made = Size(name)
        self.declared[name] = at
        return made

    def _constraints(self) -> tuple[Expr, ...]:
        out: list[Expr] = []
        while True:
            out.append(self._condition("a constraint"))
            if self.kinds[self.pos] != ",":
                return tuple(out)
            self.pos += 1

    def _condition(self, what: str) -> Expr:
        start = self.pos
        cond = self.value(None)
        if cond.dtype is not DType.BOOL:
            self.fail("type-cond", f"{what} must be bool, but this is {cond.dtype}", start, self.pos, hint="compare it with something")
        return cond

    def _declarations(self, word: str) -> tuple[Buffer, ...]:
        out: list[Buffer] = []
        while self.kinds[self.pos] not in ("newline", "eof", ","):
            names = self._array_names()
            if (stated := DTYPES.get(self.texts[self.pos])) is not None:
                self.dtype = stated
                self.pos += 1
            elif self.dtype is None:
                self.fail("type-dtype", f"the first declaration must state its dtype: {names[-1]}", self.pos - 1, hint=f"write {names[-1]} f32[...]")
            assert self.dtype is not None
            made = self._declaration(names[-1], self.dtype)
            for name in names:
                out.append(made if name == made.name else replace(made, name=name))
                self.buffers[name] = out[-1]
                self.shapes[name] = made.shape
        if not out:
            self.fail("syntax-expected", f"expected a declaration after '{word}'", self.pos, hint="declarations look like X f32[N,M]")
        return tuple(out)

    def _array_names(self) -> list[str]:
        """The names before a dtype or shape: neighbours that share it."""
        names: list[str] = []
        while not names or (self.kinds[self.pos] == "name" and self.texts[self.pos] not in DTYPES):
            at, word = self.pos, self.texts[self.pos]
            if names and looks_like_dtype(word):
                self.fail("type-dtype", f"no dtype named {word}", at, hint=suggest(word, DTYPES) or f"dtypes: {', '.join(DTYPES)}")
            names.append(self.new_name("an array"))
            self.declared[word] = at
        return names

    def _declaration(self, name: str, dtype: DType) -> Buffer:
        self.expect("[", f"the name and dtype of {name}", hint="a scalar is declared as X f32[]")
        shape: list[Expr] = []
        while shape or self.kinds[self.pos] != "]":
            is_new = not self.level and self.kinds[self.pos] == "name" and self.kinds[self.pos + 1] == "="
            shape.append(self._size() if is_new else self.index(f"a dimension of {name}"))
            if self.kinds[self.pos] != ",":
                break
            self.pos += 1
        self.expect("]", f"the shape of {name}")
        scope = _SCOPES.get(self.texts[self.pos], Scope.GLOBAL)
        if scope is not Scope.GLOBAL:
            self.pos += 1
        limits: tuple[Expr, Expr] | None = None
        kind = self.kinds[self.pos]
        if kind in ("num", "-", "(") or (kind == "name" and self.kinds[self.pos + 1] in _AFTER_LOW):
            low = self.index(f"the lower bound of {name}")
            self.expect("..", f"the lower bound of {name}")
            limits = (low, self.index(f"the upper bound of {name}"))
        return Buffer(name, dtype, tuple(shape), scope, limits)

    # statements

    def _block(self, path: Path) -> Body:
        out: list[Stmt] = []
        kinds = self.kinds
        while (kind := kinds[self.pos]) != "dedent" and kind != "eof":
            if kind == "indent":
                self.fail("syntax-indent", "an indented line without a loop or guard above it", self.pos + 1)
            out.append(self._line((*path, len(out))))
        return tuple(out)

    def _line(self, path: Path) -> Stmt:
        heads: list[_Head] = []
        added: list[str] = []
        here = path
        outer = self.level
        tmps: tuple[Buffer, ...] = ()
        while True:
            kind = self.kinds[self.pos]
            if kind in _LOOPS:
                here = self._loops(_LOOPS[kind], heads, added, here)
            elif kind == "if":
                start = self.pos
                self.pos += 1
                cond = self._condition("the condition of a guard")
                self.expect(":", "the condition of the guard")
                self._enter(start)
                self.spans[here] = (start, self.pos)
                heads.append(cond)
                here = (*here, 0)
            elif kind == "name" or kind == "carry":
                body: Body = (self._store(here),)
                break
            elif kind == "newline" and heads:
                tmps, body = self._indented(heads[-1], here[:-1])
                break
            else:
                self.fail("syntax-expected", f"expected a loop, a guard or a store, found {self.found()}", self.pos, hint=_STATEMENT_HINT)
        self.level = outer
        for name in added:
            del self.names[name]
        for head in reversed(heads):
            body = (Loop(head.var, self._extent(head, body), body, head.kind, tmps) if isinstance(head, _LoopHead) else If(head, body),)
            tmps = ()
        return body[0]

    def _extent(self, head: _LoopHead, body: Body) -> Expr:
        if head.extent is not None:
            return head.extent
        var, dims = head.var, indexed_dimensions(head.var, body, self.shapes)
        if len(dims) == 1:
            return next(iter(dims))
        wanted = var.upper()
        reason, shown = f"no access indexes a dimension by {var} alone", [wanted if wanted in self.sizes else f"{wanted} with its extent for {wanted}"]
        if dims:
            shown = [print_expr(dim, DType.I64) for dim in dims]
            reason = "it indexes " + " and ".join(f"dimension {text} of {buffer}" for text, buffer in zip(shown[:2], dims.values(), strict=False))
        self.fail(
            "syntax-extent", f"the extent of loop {var} cannot be inferred: {reason}", head.at, hint=f"write {' or '.join(f'{var}:{s}' for s in shown[:2])}"
        )

    def _enter(self, at: int) -> None:
        self.level += 1
        if self.level > MAX_NEST:
            self.fail("syntax-depth", f"more than {MAX_NEST} loops and guards inside one another", at)

    def _loops(self, kind: LoopKind, heads: list[_Head], added: list[str], here: Path) -> Path:
        word = self.texts[self.pos]
        self.pos += 1
        first = True
        while first or (self.kinds[self.pos] == "name" and self.kinds[self.pos + 1] != "["):
            first = False
            start = self.pos
            var = self.new_name(f"the variable of a '{word}' loop")
            extent: Expr | None = None
            if self.kinds[self.pos] == ":":
                self.pos += 1
                extent = self.index(f"the extent of loop {var}")
            self._enter(start)
            self.spans[here] = (start, self.pos)
            self.names[var] = Var(var)
            added.append(var)
            heads.append(_LoopHead(kind, var, extent, start))
            here = (*here, 0)
        return here

    def _indented(self, owner: _Head, path: Path) -> tuple[tuple[Buffer, ...], Body]:
        at = self.pos
        self.pos += 1
        if self.kinds[self.pos] != "indent":
            self.fail("syntax-body", "a loop or guard without a body", at - 1, hint="put a store on the line, or an indented block below it")
        self.pos += 1
        tmps: tuple[Buffer, ...] = ()
        if self.kinds[self.pos] == "tmp":
            if not isinstance(owner, _LoopHead):
                self.fail("syntax-order", "temporaries belong to a loop or the program, not to a guard", self.pos)
            self.pos += 1
            tmps = self._declarations("tmp")
            self.end_of_line("the 'tmp' line")
        body = self._block(path)
        for b in tmps:
            del self.buffers[b.name]
            self.hidden[b.name] = f"it is declared inside the loop of line {self.tokens.place(self.spans[path][0]).line}"
        if self.kinds[self.pos] == "dedent":
            self.pos += 1
        if not body:
            self.fail("syntax-body", "a loop or guard without a body", at - 1)
        return tmps, body

    def _store(self, path: Path) -> Store:
        start = self.pos
        carry = self.kinds[start] == "carry"
        at = start + carry
        name = self.texts[at]
        if self.kinds[at] != "name" or self.kinds[at + 1] != "[":
            near = suggest(name, [*_LOOPS, "if", "carry"]) if self.kinds[at] == "name" and len(name) > 1 else ""
            self.pos = at
            self.fail("syntax-expected", f"expected a loop, a guard or a store, found {self.found()}", at, hint=near or _STATEMENT_HINT)
        buffer, indices = self.target(name, at)
        sign = self.kinds[self.pos]
        if sign not in _ASSIGN:
            known = " ".join(_ASSIGN)
            self.fail("syntax-expected", f"expected an assignment after {name}[...], found {self.found()}", self.pos, hint=f"assignments: {known}")
        reduce = _ASSIGN[sign]
        if carry and reduce is None:
            self.fail("syntax-carry", "'carry' continues an accumulation; '=' does not accumulate", start, self.pos + 1, hint="drop 'carry'")
        self.pos += 1
        begin = self.pos
        value = self.value(buffer.dtype)
        if value.dtype is not buffer.dtype:
            self.fail("type-store", f"{name} holds {buffer.dtype}, but the value is {value.dtype}", begin, self.pos, hint=f"cast it: {buffer.dtype}(...)")
        self.spans[path] = (start, self.pos)
        self.end_of_line("the store")
        return Store(name, indices, value, reduce, carry)


def place_of(program: Program, path: Path) -> Place:
    """The place of a statement in the text that the program was read from, or in its canonical text."""
    return SourceMap.of(program).place(path)
