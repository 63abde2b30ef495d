"""Concrete syntaxes for LEIR to compare by their cost in tokens. ``canonical`` is the one of ``docs/leir.md``; the others exist only here."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from steptp.ir import Body, Buffer, Const, DType, Expr, If, Load, Loop, LoopKind, Program, Scope, Size, Stmt, Store, Var, print_expr, print_program
from steptp.ir.extents import declared_in_shapes, indexed_dimensions
from steptp.ir.nodes import SizeDecl
from steptp.ir.ops import REDUCERS
from steptp.ir.types import looks_like_dtype
from steptp.ir.walk import buffer_table, map_expr, map_program_exprs, subexprs

__all__ = ["SYNTAXES"]


@dataclass(frozen=True)
class _Style:
    """How a variant differs from the canonical text."""

    dtype_at_access: bool = False
    dtype_per_line: bool = False  # the first declaration of each line states its dtype
    line_per_loop: bool = False
    indent: int = 1
    keyword_per_loop: bool = False
    no_for: bool = False  # a serial loop at the start of a line has no keyword
    braces: bool = False
    python_loops: bool = False
    spaced: bool = False
    spaced_assign: bool = False
    neighbours_apart: bool = False  # each declaration has its own shape
    size_line: bool = False
    written_extents: bool = False
    index_notation: bool = False  # C[i,j]+=A[i,k]*B[k,j]: serial loops in order of first appearance are implied too


def _spaced(text: str) -> str:
    """Blanks around operators and after commas."""
    text = re.sub(r"(?<=[\w\])])(//|[-+*/%]|<=|>=|==|!=|<|>)(?=[\w(\[-])", r" \1 ", text)
    return re.sub(r",(?=\S)", ", ", text)


class _Printer:
    def __init__(self, program: Program, style: _Style) -> None:
        self.program = program
        self.style = style
        self.table = buffer_table(program)
        self.out: list[str] = []
        self.last: DType | None = None
        self.shapes = {name: b.shape for name, b in self.table.items()}
        self.unseen = {} if style.size_line else {s.name: s for s in declared_in_shapes(program)}

    def text(self) -> str:
        p = self.program
        shown = [s for s in p.sizes if s.name not in self.unseen]
        if shown:
            self.out.append("size " + " ".join(map(self.size, shown)))
        for word, group in (("in", p.inputs), ("out", p.outputs), ("tmp", p.tmps)):
            if group:
                self.out.append(self.declarations(word, group))
        if p.constraints:
            self.out.append("where " + ", ".join(self.expr(c, None) for c in p.constraints))
        self.body(p.body, 0)
        return "\n".join([*self.out, ""])

    def declarations(self, word: str, group: tuple[Buffer, ...]) -> str:
        parts, last = [word], None if self.style.dtype_per_line else self.last
        for position, b in enumerate(group):
            after = group[position + 1] if position + 1 < len(group) else None
            if after is not None and not self.style.neighbours_apart and replace(after, name=b.name) == b and not looks_like_dtype(after.name):
                parts.append(b.name)
                continue
            dtype = "" if b.dtype is last or self.style.dtype_at_access else f" {b.dtype}"
            scope = f" {b.scope}" if b.scope is not Scope.GLOBAL else ""
            limits = f" {self.expr(b.range[0], DType.I64)}..{self.expr(b.range[1], DType.I64)}" if b.range else ""
            parts.append(f"{b.name}{dtype}[{','.join(self.dim(s) for s in b.shape)}]{scope}{limits}")
            last = self.last = b.dtype
        return " ".join(parts)

    def expr(self, expr: Expr, context: DType | None) -> str:
        text = print_expr(expr, context)
        if self.style.dtype_at_access:
            text = re.sub(r"\b([A-Za-z_]\w*)\[", lambda m: f"{m[1]}:{self.table[m[1]].dtype}[", text)
        return _spaced(text) if self.style.spaced else text

    def dim(self, dim: Expr) -> str:
        first = self.unseen.pop(dim.name, None) if isinstance(dim, Size) else None
        return self.size(first) if first else self.expr(dim, DType.I64)

    def size(self, s: SizeDecl) -> str:
        return f"{s.name}={s.value if s.expr is None else self.expr(s.expr, DType.I64)}"

    def inferred(self, loop: Loop) -> bool:
        """Whether the extent is the dimension that the variable alone indexes at its first such access."""
        return [*indexed_dimensions(loop.var, loop.body, self.shapes)] == [loop.extent]

    def implied(self, chain: list[Loop | If], store: Store) -> int:
        """How many loops at the end of a chain index notation leaves out."""
        order = [n for indices in _accesses(store) for i in indices for n in _in_order(i)]
        count = 0
        for node in reversed(chain):
            if not isinstance(node, Loop) or node.kind is not LoopKind.SERIAL or node.tmps or node.var not in order or not self.inferred(node):
                break
            names = [n.var for n in chain[len(chain) - count - 1 :] if isinstance(n, Loop)]
            if sorted(names, key=order.index) != names:
                break
            count += 1
        return count

    def store(self, s: Store) -> str:
        dtype = f":{self.table[s.buffer].dtype}" if self.style.dtype_at_access else ""
        index = ("," + " " * self.style.spaced).join(self.expr(i, DType.I64) for i in s.indices)
        sign = "=" if s.reduce is None else REDUCERS[s.reduce].token
        blank = " " if self.style.spaced_assign or self.style.spaced else ""
        before = " " if sign[0].isalpha() else blank
        return f"{'carry ' if s.carry else ''}{s.buffer}{dtype}[{index}]{before}{sign}{blank}{self.expr(s.value, s.value.dtype)}" + ";" * self.style.braces

    def hidden(self, stmt: Stmt) -> frozenset[int]:
        chain: list[Loop | If] = []
        while not isinstance(stmt, Store):
            chain.append(stmt)
            if len(stmt.body) != 1:
                return frozenset()
            stmt = stmt.body[0]
        return frozenset(id(n) for n in chain[len(chain) - self.implied(chain, stmt) :])

    def body(self, body: Body, level: int) -> None:
        pad = " " * (self.style.indent * level)
        for stmt in body:
            heads: list[str] = []
            kind: LoopKind | None = None
            node = stmt
            hidden = self.hidden(stmt) if self.style.index_notation else frozenset()
            while not isinstance(node, Store):
                if id(node) in hidden:
                    assert isinstance(node, Loop)
                    node = node.body[0]
                    continue
                if isinstance(node, If):
                    heads.append(f"if {self.expr(node.cond, None)}:" if not self.style.braces else f"if({self.expr(node.cond, None)})")
                    kind = None
                elif self.style.python_loops:
                    heads.append(f"{node.kind} {node.var} in range({self.expr(node.extent, DType.I64)}):")
                else:
                    word = "" if node.kind is kind and not self.style.keyword_per_loop else f"{node.kind} "
                    word = "" if self.style.no_for and node.kind is LoopKind.SERIAL and kind is None else word
                    extent = "" if not self.style.written_extents and self.inferred(node) else f":{self.expr(node.extent, DType.I64)}"
                    heads.append(f"{word}{node.var}{extent}")
                    kind = node.kind
                tmps = node.tmps if isinstance(node, Loop) else ()
                if tmps or len(node.body) != 1 or self.style.line_per_loop or (self.style.braces and isinstance(node, If)):
                    break
                node = node.body[0]
            if isinstance(node, Store):
                self.out.append(pad + " ".join([*heads, self.store(node)]))
                continue
            self.out.append(pad + " ".join(heads) + "{" * self.style.braces)
            if isinstance(node, Loop) and node.tmps:
                self.out.append(pad + " " * self.style.indent + self.declarations("tmp", node.tmps))
            self.body(node.body, level + 1)
            if self.style.braces:
                self.out.append(pad + "}")


def _accesses(store: Store) -> Iterator[tuple[Expr, ...]]:
    """Indices of the accesses in the order of the text."""
    yield store.indices
    for expr in (*store.indices, store.value):
        yield from (e.indices for e in subexprs(expr) if isinstance(e, Load))


def _in_order(expr: Expr) -> list[str]:
    return [e.name for e in subexprs(expr) if isinstance(e, Var)]


def _styled(style: _Style) -> Callable[[Program], str]:
    return lambda program: _Printer(program, style).text()


def _unchained(program: Program) -> str:
    """``0<=i and i<N`` instead of ``0<=i<N``."""
    side = r"[^<>=, ]+"
    return re.sub(rf"({side})(<=?)({side})(<=?)(?={side})", r"\1\2\3 and \3\4", print_program(program))


def _keyword_per_assign(program: Program) -> str:
    """Words instead of operators for accumulation: ``sum C[i,j] A[i,k]*B[k,j]``."""
    text = print_program(program)
    words = {"+=": "sum", "*=": "prod", "max=": "max", "min=": "min", "or=": "any", "and=": "all"}
    return "\n".join(re.sub(r"(\w+\[[^=]*?\]) ?(\+=|\*=|max=|min=|or=|and=)", lambda m: f"{words[m[2]]} {m[1]} ", line) for line in text.split("\n"))


def _numbers(program: Program) -> str:
    """Sizes written as numbers at every use (cannot be re-bound)."""

    env = program.size_env

    def fill(expr: Expr) -> Expr:
        return map_expr(expr, lambda e: Const(env[e.name], DType.I64) if isinstance(e, Size) else e)

    def declared(b: Buffer) -> Buffer:
        limits = (fill(b.range[0]), fill(b.range[1])) if b.range else None
        return Buffer(b.name, b.dtype, tuple(fill(s) for s in b.shape), b.scope, limits)

    changed = map_program_exprs(program, fill)
    groups = {k: tuple(declared(b) for b in getattr(program, k)) for k in ("inputs", "outputs", "tmps")}
    return print_program(changed.with_(sizes=(), constraints=(), **groups))


def _short_names(program: Program) -> str:
    """Canonical text after renaming tensors and sizes to single letters where there are enough of them."""
    letters = iter("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghopqrstuvwxyz")
    text = print_program(program)
    names = [*(s.name for s in program.sizes), *buffer_table(program)]
    taken = set(re.findall(r"\w+", text))
    for name in names:
        if len(name) > 1:
            new = next((c for c in letters if c not in taken), name)
            text = re.sub(rf"\b{name}\b", new, text)
    return text


SYNTAXES: dict[str, Callable[[Program], str]] = {
    "canonical": _styled(_Style()),
    # one choice undone
    "extents written": _styled(_Style(written_extents=True)),
    "size line": _styled(_Style(size_line=True)),
    "neighbours apart": _styled(_Style(neighbours_apart=True)),
    "dtype per line": _styled(_Style(dtype_per_line=True)),
    "blanks around =": _styled(_Style(spaced_assign=True)),
    "no chains": _unchained,
    "keyword per loop": _styled(_Style(keyword_per_loop=True)),
    "line per loop": _styled(_Style(line_per_loop=True, keyword_per_loop=True)),
    "dtype at access": _styled(_Style(dtype_at_access=True)),
    "all spelled out": _styled(_Style(written_extents=True, size_line=True, neighbours_apart=True, dtype_per_line=True, spaced_assign=True)),
    # other styles
    "blanks everywhere": _styled(_Style(spaced=True)),
    "braces": _styled(_Style(braces=True)),
    "Python loops": _styled(_Style(python_loops=True)),
    "Python lines": _styled(_Style(python_loops=True, line_per_loop=True, indent=4, spaced=True)),
    "words for sums": _keyword_per_assign,
    # shorter, not chosen
    "no 'for'": _styled(_Style(no_for=True)),
    "index notation": _styled(_Style(index_notation=True)),
    "numbers for sizes": _numbers,
    "one-letter names": _short_names,
}
"""Name → text of a program. ``canonical`` is printed by the code of the others, to show that they differ in nothing else."""
