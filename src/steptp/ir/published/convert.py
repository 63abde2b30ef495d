"""Syntax tree → LEIR program: roles of tensors, what accumulations start from, loop kinds that LEIR can express."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from steptp.ir.affine import NotAffine, form_of, is_injective
from steptp.ir.checks import check
from steptp.ir.kernels import AXIS_LIMITS, MAX_THREADS
from steptp.ir.lexer import RESERVED
from steptp.ir.nodes import Body, Buffer, Expr, Loop, Path, Program, Stmt, Store, Var, const, identity_of, op
from steptp.ir.ops import REDUCERS
from steptp.ir.published.boxes import accesses
from steptp.ir.published.notes import Note
from steptp.ir.published.reader import too_deep
from steptp.ir.published.scan import Scan, Tensor, Write, same_element, scan
from steptp.ir.published.terms import Terms
from steptp.ir.published.tree import LoopHead, Nest, Span, Term, Text
from steptp.ir.sourcemap import SourceMap
from steptp.ir.types import DType, LoopKind, Scope
from steptp.ir.walk import map_loops

__all__ = ["Reading", "Interface", "convert", "interface_of"]

_KINDS = {"L": LoopKind.SERIAL, "P": LoopKind.PARALLEL, "V": LoopKind.VECTOR, "U": LoopKind.UNROLL}
_AXES = ("bx", "by", "bz", "tx", "ty", "tz")


@dataclass(frozen=True, slots=True)
class Interface:
    """Inputs and outputs by name with dtype and shape."""

    inputs: Mapping[str, tuple[DType, tuple[int, ...]]]
    outputs: Mapping[str, tuple[DType, tuple[int, ...]]]


@dataclass(frozen=True, slots=True)
class Reading:
    """What a text means: the program, and every open point that it met.

    ``program`` keeps the loop kinds that LEIR can express there. ``claimed`` has all of them as written and need not be valid: it serves to
    ask whether concurrent loops carry dependences.
    """

    program: Program
    claimed: Program
    notes: tuple[Note, ...]

    @property
    def codes(self) -> tuple[str, ...]:
        """The codes of the notes, each once, in order."""
        return tuple(dict.fromkeys(n.code for n in self.notes))

    @property
    def serial(self) -> Program:
        """The program with every loop serial: what it computes, without claims about how."""
        serial = map_loops(self.program.body, lambda loop: replace(loop, kind=LoopKind.SERIAL))
        return SourceMap.of(self.program).kept_for(self.program.with_(body=serial))


def interface_of(found: Scan) -> Interface:
    """The interface that a text shows by itself; raises :class:`LeirError` ``published-output`` when nothing is left to be seen."""
    text = found.text
    if not found.outputs:
        hint = "an output is written and then read by no other statement"
        raise text.error("published-output", "every tensor that is written is read again, so no output can be told", text.nests[-1].span, hint)
    tensors = found.tensors
    return Interface(
        {n: (tensors[n].dtype, tensors[n].box) for n in found.inputs},
        {n: (tensors[n].dtype, tensors[n].box) for n in found.outputs},
    )


def convert(text: Text, interface: Interface | None = None, found: Scan | None = None, renamed: Mapping[str, str] | None = None) -> Reading:
    """The LEIR program that a tree stands for, under its own interface or a given one; raises :class:`LeirError` ``published-*``.

    ``renamed`` gives tensors another name in the program.
    """
    try:
        found = found or scan(text)
        return _Converter(found, interface or interface_of(found), renamed or {}).run()
    except RecursionError:
        raise too_deep(text) from None


@dataclass
class _Converter:
    found: Scan
    interface: Interface
    renamed: Mapping[str, str]
    notes: dict[tuple[str, str], Note] = field(default_factory=dict)
    spans: dict[Path | str, tuple[int, int]] = field(default_factory=dict)

    def run(self) -> Reading:
        text, face, tensors = self.found.text, self.interface, self.found.tensors
        for note in self.found.notes:
            self.notes.setdefault((note.code, note.message), note)
        for name in list(face.outputs)[1:]:
            self.note("output-chosen", f"{name} is one of {len(face.outputs)} outputs", tensors[name].first.span if name in tensors else (0, 1))
        self._scopes()
        self.names = self._renamed()
        self.terms = Terms(text, {t.name: t.dtype for t in tensors.values()}, self.names, self.note)
        starts = {t.name: t for t in tensors.values() if t.writes and self._needs_start(t)}
        body: list[Stmt] = []
        for tensor in starts.values():
            body.append(self._start(tensor))
        started = set(starts)
        claimed = list(body)
        for nest in text.nests:
            row = tuple(self._statement(nest, number, started) for number in range(len(nest.statements)))
            path: Path = (len(body),)
            self._mark(path, nest)
            body.append(self._loops(nest, row, self._kinds(nest)))
            claimed.append(self._loops(nest, row, [_written_kind(h) for h in nest.loops]))
        inputs = tuple(self._buffer(n, *d) for n, d in face.inputs.items())
        outputs = tuple(self._buffer(n, *d) for n, d in face.outputs.items())
        tmps = tuple(self._buffer(t.name, t.dtype, t.box) for t in tensors.values() if t.name not in face.inputs and t.name not in face.outputs)
        for tensor in tensors.values():
            self.spans.setdefault(self.names[tensor.name], tensor.first.word)
        lines = SourceMap(text.source, text.filename, self.spans, self.spans)
        program = lines.kept_for(Program((), inputs, outputs, tuple(body), tmps))
        check(program)
        kept = tuple(sorted(self.notes.values(), key=lambda n: (n.place.line, n.place.column) if n.place else (0, 0)))
        return Reading(program, lines.kept_for(program.with_(body=tuple(claimed))), kept)

    # names, scopes, notes

    def note(self, code: str, message: str, span: Span) -> None:
        """Record an open point, once for each message."""
        if (code, message) not in self.notes:
            self.notes[code, message] = Note(code, message, self.found.text.place(span))

    def _renamed(self) -> dict[str, str]:
        used = {*self.found.tensors, *self.interface.inputs, *self.interface.outputs, *(h.var for nest in self.found.text.nests for h in nest.loops)}
        out = {}
        for tensor in self.found.tensors.values():
            name = self.renamed.get(tensor.name, tensor.name)
            out[tensor.name] = name if name not in RESERVED else _fresh(name, used)
            if out[tensor.name] != name:
                self.note("name-changed", f"{tensor.name} becomes {out[tensor.name]}", tensor.first.word)
        self.used = used
        self.vars: dict[str, str] = {}
        return out

    def _var(self, name: str) -> str:
        if name not in self.vars:
            taken = name in RESERVED or name in self.names.values()
            self.vars[name] = _fresh(name, self.used) if taken else name
        return self.vars[name]

    def _scopes(self) -> None:
        text, face = self.found.text, self.interface
        for tensor in self.found.tensors.values():
            narrow = next((a for s, a in tensor.scopes.items() if s != "g"), None)
            if narrow is None:
                continue
            what = {"s": "shared", "l": "local"}[narrow.scope]
            if tensor.name in face.outputs or tensor.name in face.inputs:
                role = "output" if tensor.name in face.outputs else "input"
                hint = "interface tensors are global; copy the tensor instead"
                raise text.error("published-scope", f"{role} {tensor.name} is {what}, so nobody outside can see it", narrow.span, hint)
            if len(tensor.nests) > 1:
                self.note("scope-across", f"{what} tensor {tensor.name} is used in {len(tensor.nests)} nests", narrow.span)
            else:
                self.note("scope-dropped", f"{tensor.name} is {what}", narrow.span)

    def _buffer(self, name: str, dtype: DType, shape: tuple[int, ...]) -> Buffer:
        if name in self.found.tensors and shape and name in self.interface.inputs:
            self.note("shape-inferred", "shapes follow from the accesses", self.found.tensors[name].first.span)
        return Buffer(self.names.get(name, name), dtype, tuple(const(n, DType.I64) for n in shape), Scope.GLOBAL)

    # what accumulations start from

    def _needs_start(self, tensor: Tensor) -> bool:
        """Whether a nest of its own must set the tensor to an identity; raises ``published-init`` where that identity is not determined."""
        updates = [w for w in tensor.writes if w.update is not None]
        first = tensor.writes[0]
        text = self.found.text
        if not updates:
            if first.reads_itself:
                hint = "only X=X+e, X*e, max(X,e) and min(X,e) say what X starts as"
                raise text.error("published-init", f"{tensor.name} is updated in terms of itself before anything is written to it", first.statement.span, hint)
            return False
        if self._covers(tensor, first) and not (first.update is not None and (not first.absent or self._disturbed(tensor, first))):
            return False
        kinds = {w.update.reduce for w in updates if w.update is not None}
        if len(kinds) > 1:
            hint = "write every element once before it is accumulated"
            message = f"{tensor.name} is accumulated by {' and '.join(sorted(kinds))}, so its start is open"
            raise text.error("published-init", message, first.statement.span, hint)
        if first.update is None or not first.absent:
            code, why = ("init-partial", "written only in part first") if first.update is None else ("init-update", "updated before anything is written to it")
        else:
            code, why = "init-partial", "not reached as a whole by its first reduction"
        self.note(code, f"{tensor.name} is {why}", first.statement.span)
        return True

    def _covers(self, tensor: Tensor, write: Write) -> bool:
        """Whether the write reaches every element of the tensor, each at one combination of the indexing loops."""
        loops = [h for h in self.found.text.nests[write.nest].loops if h not in write.absent]
        if math.prod(h.extent for h in loops) != math.prod(self._shape(tensor)):
            return False
        terms = Terms(self.found.text, {t.name: t.dtype for t in self.found.tensors.values()}, self.names, lambda *_: None, {h.var: h.var for h in loops})
        ranges = {h.var: (0, h.extent - 1) for h in loops}
        try:
            forms = [form_of(terms.index(i), {}, ranges) for i in write.statement.target.indices]
        except NotAffine:
            return False
        return not loops or is_injective(forms, [h.var for h in loops], ranges)

    def _shape(self, tensor: Tensor) -> tuple[int, ...]:
        given = self.interface.outputs.get(tensor.name)
        return given[1] if given is not None else tensor.box

    def _disturbed(self, tensor: Tensor, first: Write) -> bool:
        """Whether the nest touches the tensor in another way: then a reset inside the nest could come too late or too often."""
        rows = self.found.text.nests[first.nest].statements
        if any(st is not first.statement and st.target.name == tensor.name for st in rows):
            return True
        reads = (a for st in rows for a, _ in accesses(st.value) if a.name == tensor.name)
        return not all(same_element(a, first.statement.target) for a in reads)

    def _start(self, tensor: Tensor) -> Stmt:
        update = next(w.update for w in tensor.writes if w.update is not None)
        variables = [_fresh(f"i{n}", self.used) for n in range(tensor.rank)]
        body: Stmt = Store(self.names[tensor.name], tuple(Var(v) for v in variables), identity_of(update.reduce, tensor.dtype))
        for var, extent in reversed(list(zip(variables, self._shape(tensor), strict=True))):
            body = Loop(var, const(extent, DType.I64), (body,))
        return body

    # statements and loops

    def _statement(self, nest: Nest, position: int, started: set[str]) -> Store:
        st = nest.statements[position]
        tensor = self.found.tensors[st.target.name]
        write = next(w for w in tensor.writes if w.statement is st)
        self.terms.vars = {h.var: self._var(h.var) for h in nest.loops}
        name = self.names[tensor.name]
        indices = tuple(self.terms.index(i) for i in st.target.indices)
        if write.update is None or not write.absent:
            if write.reads_itself:
                code, message = ("init-continue", "is updated") if write.update is not None else ("order-serial", "is updated, but is no reduction")
                self.note(code, f"{tensor.name} {message} here", st.span)
            return Store(name, indices, self.terms.value(st.value, tensor.dtype))
        first = write is tensor.writes[0]
        if not first:
            self.note("init-continue", f"{tensor.name} is accumulated again here", st.span)
        if len(write.update.rest) > 1 and write.update.reduce == "+":
            self.note("sum-rest", f"the reduction into {tensor.name} adds a sum", st.span)
        value = self._combined(write.update.reduce, write.update.rest, write.update.subtracted, tensor.dtype)
        return Store(name, indices, value, write.update.reduce, carry=not first or tensor.name in started)

    def _combined(self, reduce: str, rest: tuple[Term, ...], away: tuple[bool, ...], dtype: DType) -> Expr:
        values = [self.terms.value(term, dtype) for term in rest]
        out = op("neg", values[0]) if away[0] else values[0]
        for value, minus in zip(values[1:], away[1:], strict=True):
            out = op("-" if minus else REDUCERS[reduce].op, out, value)
        return out

    def _loops(self, nest: Nest, row: Body, kinds: list[LoopKind]) -> Stmt:
        body = row
        for head, kind in reversed(list(zip(nest.loops, kinds, strict=True))):
            body = (Loop(self._var(head.var), const(head.extent, DType.I64), body, kind),)
        assert len(body) == 1 or not nest.loops
        return body[0]

    def _mark(self, path: Path, nest: Nest) -> None:
        for head in nest.loops:
            self.spans[path] = head.span
            path = (*path, 0)
        base = path[:-1] if nest.loops else path
        for number, st in enumerate(nest.statements):
            self.spans[(*base, number) if nest.loops else base] = st.span

    def _kinds(self, nest: Nest) -> list[LoopKind]:
        """The kinds as written where LEIR allows them, else serial."""
        out: list[LoopKind] = []
        threads = 1
        for depth, head in enumerate(nest.loops):
            kind = _written_kind(head)
            why = _refused(kind, head.extent, out, threads, depth == len(nest.loops) - 1)
            if why:
                self.note("kind-dropped", f"loop {head.var} of kind {head.kind}: {why}", head.span)
                kind = LoopKind.SERIAL
            threads *= head.extent if kind.is_thread else 1
            out.append(kind)
        return out


def _written_kind(head: LoopHead) -> LoopKind:
    if head.kind != "B":
        return _KINDS[head.kind]
    return LoopKind(next((a for a in _AXES if head.var.startswith(a)), "tx"))


def _refused(kind: LoopKind, extent: int, outer: list[LoopKind], threads: int, innermost: bool) -> str:
    if kind is LoopKind.VECTOR and not innermost:
        return "a vectorised loop is innermost"
    if kind is LoopKind.PARALLEL and any(k is LoopKind.PARALLEL or k.is_bound for k in outer):
        return "it stands inside a parallel or bound loop"
    if not kind.is_bound:
        return ""
    if LoopKind.PARALLEL in outer:
        return "it stands inside a parallel loop"
    if kind in outer:
        return f"the axis {kind} is bound twice"
    if kind.is_block and any(k.is_thread for k in outer):
        return "a block axis stands inside a thread axis"
    if extent > AXIS_LIMITS[kind]:
        return f"the axis {kind} holds at most {AXIS_LIMITS[kind]}"
    return f"a block holds at most {MAX_THREADS} threads" if kind.is_thread and threads * extent > MAX_THREADS else ""


def _fresh(name: str, used: set[str]) -> str:
    number = 0
    while (made := f"{name}{number or '_'}") in used or made in RESERVED:
        number += 1
    used.add(made)
    return made
