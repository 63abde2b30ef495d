"""Concrete syntaxes for LEIR to compare by their cost in tokens. ``canonical`` is the one in ``docs/leir.md``; the others exist only here."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from steptp.ir import Body, Buffer, Const, DType, Expr, If, Load, Loop, LoopKind, Program, Scope, Size, Stmt, Store, Var, print_expr, print_program
from steptp.ir.ops import REDUCERS
from steptp.ir.walk import buffer_table, map_expr, map_program_exprs, subexprs

__all__ = ["SYNTAXES"]

_ASSIGN = re.compile(r" (=|\+=|\*=|max=|min=|or=|and=) ")


@dataclass(frozen=True)
class _Style:
    """How a variant differs from the canonical text."""

    dtype_at_access: bool = False
    line_per_loop: bool = False
    indent: int = 1
    keyword_per_loop: bool = False
    braces: bool = False
    python_loops: bool = False
    spaced: bool = False
    carry_dtype: bool = False  # a declaration takes the dtype of the one before it, also across lines
    sizes_in_shapes: bool = False  # a size gets its value where it first occurs: in A f32[N=64,K=128]
    infer_extents: bool = False  # for i j k C[i,j] += A[i,k]*B[k,j]: extents are the dimensions that the variables index
    index_notation: bool = False  # C[i,j] += A[i,k]*B[k,j]: serial loops in order of first appearance are implied too


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
        self.unseen = {s.name: s for s in program.sizes if s.expr is None} if style.sizes_in_shapes else {}

    def text(self) -> str:
        p = self.program
        shown = [s for s in p.sizes if s.name not in self.unseen]
        if self.style.sizes_in_shapes:  # only sizes that are whole dimensions of inputs can be given there
            used = {d.name for b in p.inputs for d in b.shape if isinstance(d, Size)}
            shown = [s for s in p.sizes if s.name not in self.unseen or s.name not in used]
            self.unseen = {n: s for n, s in self.unseen.items() if n in used}
        if shown:
            self.out.append("size " + " ".join(f"{s.name}={s.value if s.expr is None else self.expr(s.expr, DType.I64)}" for s in shown))
        if p.constraints:
            self.out.append("where " + ", ".join(self.expr(c, None) for c in p.constraints))
        for word, group in (("in", p.inputs), ("out", p.outputs), ("tmp", p.tmps)):
            if group:
                self.out.append(self.declarations(word, group))
        self.body(p.body, 0)
        return "\n".join([*self.out, ""])

    def declarations(self, word: str, group: tuple[Buffer, ...]) -> str:
        parts, last = [word], self.last if self.style.carry_dtype else None
        for b in group:
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
        return f"{first.name}={first.value}" if first else self.expr(dim, DType.I64)

    def inferred(self, loop: Loop) -> bool:
        """Whether the extent is the dimension that the variable alone indexes at its first such access."""
        for name, indices in _accesses(loop.body):
            for position, index in enumerate(indices):
                if isinstance(index, Var) and index.name == loop.var:
                    return self.table[name].shape[position] == loop.extent
        return False

    def implied(self, chain: list[Loop | If], store: Store) -> int:
        """How many loops at the end of a chain index notation leaves out."""
        order = [n for _, indices in _accesses((store,)) for i in indices for n in _in_order(i)]
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
        return f"{'carry ' if s.carry else ''}{s.buffer}{dtype}[{index}] {sign} {self.expr(s.value, s.value.dtype)}" + ";" * self.style.braces

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
                    extent = "" if self.style.infer_extents and self.inferred(node) else f":{self.expr(node.extent, DType.I64)}"
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


def _accesses(body: Body) -> Iterator[tuple[str, tuple[Expr, ...]]]:
    """Accesses in the order of the text."""
    for stmt in body:
        if isinstance(stmt, Store):
            yield stmt.buffer, stmt.indices
        exprs = (*stmt.indices, stmt.value) if isinstance(stmt, Store) else (stmt.cond,) if isinstance(stmt, If) else (stmt.extent,)
        for expr in exprs:
            yield from ((e.buffer, e.indices) for e in subexprs(expr) if isinstance(e, Load))
        if not isinstance(stmt, Store):
            yield from _accesses(stmt.body)


def _in_order(expr: Expr) -> list[str]:
    return [e.name for e in subexprs(expr) if isinstance(e, Var)]


def _styled(style: _Style) -> Callable[[Program], str]:
    return lambda program: _Printer(program, style).text()


def _tight(program: Program) -> str:
    """No blanks around assignments."""
    return _ASSIGN.sub(r"\1", print_program(program))


def _keyword_per_assign(program: Program) -> str:
    """Words instead of operators for accumulation: ``sum C[i,j] A[i,k]*B[k,j]``."""
    text = print_program(program)
    words = {"+=": "sum", "*=": "prod", "max=": "max", "min=": "min", "or=": "any", "and=": "all"}
    return "\n".join(re.sub(r"(\w+\[[^=]*?\]) (\+=|\*=|max=|min=|or=|and=) ", lambda m: f"{words[m[2]]} {m[1]} ", line) for line in text.split("\n"))


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
    "canonical": print_program,
    "explicit": lambda program: print_program(program, compact=False),
    "compact": lambda program: print_program(program, compact=True),
    "tight": _tight,
    "short_names": _short_names,
    "numbers": _numbers,
    "keyword_per_loop": _styled(_Style(keyword_per_loop=True)),
    "dtype_at_access": _styled(_Style(dtype_at_access=True)),
    "line_per_loop": _styled(_Style(line_per_loop=True, keyword_per_loop=True)),
    "spaced": _styled(_Style(spaced=True)),
    "braces": _styled(_Style(braces=True)),
    "python_loops": _styled(_Style(python_loops=True)),
    "python_lines": _styled(_Style(python_loops=True, line_per_loop=True, indent=4, spaced=True)),
    "word_reducers": _keyword_per_assign,
    "carry_dtype": _styled(_Style(carry_dtype=True)),
    "sizes_in_shapes": _styled(_Style(sizes_in_shapes=True)),
    "infer_extents": _styled(_Style(infer_extents=True)),
    "index_notation": _styled(_Style(infer_extents=True, index_notation=True)),
    "carry+infer": _styled(_Style(carry_dtype=True, infer_extents=True)),
    "carry+infer+shapes": _styled(_Style(carry_dtype=True, infer_extents=True, sizes_in_shapes=True)),
    "carry+index": _styled(_Style(carry_dtype=True, infer_extents=True, index_notation=True)),
    "carry+index+shapes": _styled(_Style(carry_dtype=True, infer_extents=True, index_notation=True, sizes_in_shapes=True)),
}
