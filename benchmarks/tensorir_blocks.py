"""TensorIR of a program in the form that MetaSchedule schedules: one ``T.sblock`` for each store.

A block has a spatial axis for every enclosing loop that indexes the stored array and a reduction axis for the others, its reads and writes as TVM's own
analysis finds them, and an ``init`` for an accumulation. Operators are TVM's intrinsics, indices ``int32``, sizes numbers, as ``te.create_prim_func``
writes them. ``python benchmarks/tensorir_blocks.py`` checks zoo programs: the text reads back to the same function, TVM's verifier accepts it, a
schedule takes it, and some are compiled and compared with the evaluator.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "benchmarks")]

from steptp.errors import StepTPError  # noqa: E402
from steptp.ir import Body, Buffer, Cast, Const, DType, Expr, If, Load, Loop, Op, Program, Size, Store, Var, eval_index, identity_of  # noqa: E402
from steptp.ir.ops import REDUCERS  # noqa: E402
from steptp.ir.sizes import shape_of  # noqa: E402
from steptp.ir.walk import free_vars, loads  # noqa: E402

__all__ = ["NoBlocks", "blocks", "script"]

Node = Any  # TVM's nodes carry no static types
_NAMES = {
    DType.F16: "float16", DType.BF16: "bfloat16", DType.F32: "float32", DType.F64: "float64", DType.I8: "int8", DType.I32: "int32", DType.I64: "int64",
    DType.BOOL: "bool",
}  # fmt: skip
_DATA, _REDUCE = 0, 2


class NoBlocks(StepTPError):
    """The program has no plain block form: a local temporary or an extent that depends on a loop."""


class _Blocks:
    def __init__(self, program: Program) -> None:
        from tvm import s_tir, tirx

        self.tirx, self.s_tir = tirx, s_tir
        self.program = program
        self.buffers: dict[str, Node] = {}
        self.types = {b.name: b.dtype for b in (*program.inputs, *program.outputs, *program.tmps)}
        self.count: dict[str, int] = {}

    def declare(self, b: Buffer) -> Node:
        self.buffers[b.name] = self.tirx.decl_buffer(shape_of(b.shape, self.program), _NAMES[b.dtype], name=b.name, layout=None)
        return self.buffers[b.name]

    def function(self) -> Node:
        p, tirx = self.program, self.tirx
        params = [self.declare(b) for b in (*p.inputs, *p.outputs)]
        tmps = [self.declare(b) for b in p.tmps]
        root = self.s_tir.SBlock([], [], [], "root", self.body(p.body, []), None, tmps)
        made = tirx.PrimFunc(params, self.s_tir.SBlockRealize([], True, root))
        return made.with_attr("global_symbol", "main").with_attr("tirx.noalias", True).with_attr("s_tir", True)

    def body(self, body: Body, around: list[tuple[Loop | If, Node]]) -> Node:
        out = []
        for stmt in body:
            if isinstance(stmt, Store):
                out.append(self.block(stmt, around))
            elif isinstance(stmt, If):
                out.append(self.body(stmt.body, [*around, (stmt, None)]))
            else:
                if stmt.tmps or free_vars(stmt.extent):
                    raise NoBlocks("no-blocks", "a temporary of a loop, or an extent that depends on a loop")
                var = self.tirx.Var(stmt.var, "int32")
                inner = self.body(stmt.body, [*around, (stmt, var)])
                out.append(self.tirx.For(var, 0, eval_index(stmt.extent, self.program.size_env), self.tirx.ForKind.SERIAL, inner))
        return out[0] if len(out) == 1 else self.tirx.SeqStmt(out)

    def block(self, store: Store, around: list[tuple[Loop | If, Node]]) -> Node:
        import tvm

        tirx = self.tirx
        axes: dict[str, Node] = {}
        iters, values = [], []
        indexing = {name for index in store.indices for name in free_vars(index)}
        for loop, var in around:
            if isinstance(loop, Loop):
                axes[loop.var] = tirx.Var(f"v_{loop.var}", "int32")
                kind = _DATA if loop.var in indexing or store.reduce is None else _REDUCE
                dom = tvm.ir.Range(0, eval_index(loop.extent, self.program.size_env))
                iters.append(tirx.IterVar(dom, axes[loop.var], kind))
                values.append(var)
        target = self.buffers[store.buffer]
        where = [self.index(i, axes) for i in store.indices]
        dtype = self.types[store.buffer]
        value = self.value(store.value, axes)
        init = None
        conditions = [self.value(guard.cond, axes) for guard, _ in around if isinstance(guard, If)]
        if store.reduce is not None:
            if conditions and not store.carry:
                raise NoBlocks("no-blocks", "an accumulation under a guard")
            value = self.apply(REDUCERS[store.reduce].op, [tirx.BufferLoad(target, where), value], dtype)
            if not store.carry:
                init = tirx.BufferStore(target, self.value(identity_of(store.reduce, dtype), axes), where)
        body = tirx.BufferStore(target, value, where)
        for cond in reversed(conditions):
            body = tirx.IfThenElse(cond, body, None)
        number = self.count[store.buffer] = self.count.get(store.buffer, -1) + 1
        name = store.buffer if not number else f"{store.buffer}_{number}"
        plain = self.s_tir.SBlock(iters, [], [], name, body, init)
        reads, writes, _ = self.s_tir.analysis.get_sblock_access_region(plain, {b: b for b in self.buffers.values()})
        if store.reduce is not None and not store.carry:
            reads = [r for r in reads if not r.source.same_as(target)]
        return self.s_tir.SBlockRealize(values, True, self.s_tir.SBlock(iters, reads, writes, name, body, init))

    def index(self, expr: Expr, axes: dict[str, Node]) -> Node:
        """An ``int32`` index."""
        if isinstance(expr, Op) and expr.type is DType.I64 and not any(loads(expr)):
            return self.apply(expr.name, [self.index(a, axes) if a.dtype is DType.I64 else self.value(a, axes) for a in expr.args], DType.I32)
        if isinstance(expr, Var):
            return axes[expr.name]
        if isinstance(expr, Size):
            return self.tirx.IntImm("int32", self.program.size_env[expr.name])
        if isinstance(expr, Const):
            return self.tirx.IntImm("int32", int(expr.value))
        return self.tirx.Cast("int32", self.value(expr, axes))

    def value(self, expr: Expr, axes: dict[str, Node]) -> Node:
        tirx = self.tirx
        if isinstance(expr, (Var, Size)):
            return tirx.Cast("int64", self.index(expr, axes))
        if isinstance(expr, Const):
            name = _NAMES[expr.type]
            if expr.type.is_float:
                return tirx.FloatImm(name, float(expr.value))
            return tirx.IntImm(name, int(expr.value))
        if isinstance(expr, Load):
            return tirx.BufferLoad(self.buffers[expr.buffer], [self.index(i, axes) for i in expr.indices])
        if isinstance(expr, Cast):
            plain = expr.arg.dtype is DType.I64 and not any(loads(expr.arg))
            return tirx.Cast(_NAMES[expr.type], self.index(expr.arg, axes) if plain else self.value(expr.arg, axes))
        assert isinstance(expr, Op)
        if expr.type is DType.BOOL and all(a.dtype is DType.I64 and not any(loads(a)) for a in expr.args):
            return self.apply(expr.name, [self.index(a, axes) for a in expr.args], DType.BOOL)
        if expr.type is DType.I64 and not any(loads(expr)):
            return tirx.Cast("int64", self.index(expr, axes))
        return self.apply(expr.name, [self.value(a, axes) for a in expr.args], expr.type)

    def apply(self, name: str, args: list[Node], dtype: DType) -> Node:
        tirx = self.tirx
        infix = {
            "+": tirx.Add, "-": tirx.Sub, "*": tirx.Mul, "/": tirx.Div, "//": tirx.FloorDiv, "%": tirx.FloorMod, "max": tirx.Max, "min": tirx.Min, "<": tirx.LT,
            "<=": tirx.LE, ">": tirx.GT, ">=": tirx.GE, "==": tirx.EQ, "!=": tirx.NE, "and": tirx.And, "or": tirx.Or, "not": tirx.Not,
        }  # fmt: skip
        if name in infix:
            return infix[name](*args)
        if name == "select":
            return tirx.if_then_else(*args)
        if name == "neg":
            return -args[0]
        if name == "expm1":
            return tirx.Sub(tirx.exp(args[0]), tirx.FloatImm(_NAMES[dtype], 1.0))
        return getattr(tirx, name)(*args)


def blocks(program: Program) -> Node:
    """The block form of a program. Raises :class:`NoBlocks` where there is no plain one."""
    return _Blocks(program).function()


def script(program: Program) -> str:
    """TVMScript of :func:`blocks`."""
    return str(blocks(program).script(show_meta=False))


def _check(program: Program, run: bool) -> None:
    import numpy as np
    import tvm

    from steptp.interp import evaluate

    made = blocks(program)
    again = tvm.script.from_source(made.script())
    tvm.ir.assert_structural_equal(made, again)
    assert tvm.s_tir.analysis.verify_well_formed(made)
    tvm.s_tir.Schedule(made, debug_mask="all")
    if not run:
        return
    rng = np.random.default_rng(0)
    inputs = {b.name: rng.uniform(0.1, 1, shape_of(b.shape, program)).astype("float32") for b in program.inputs}
    expected = evaluate(program, inputs)
    outputs = {b.name: tvm.runtime.tensor(np.zeros(shape_of(b.shape, program), "float32")) for b in program.outputs}
    tvm.compile(made, target="llvm")["main"](*(tvm.runtime.tensor(a) for a in inputs.values()), *outputs.values())
    for name, array in outputs.items():
        np.testing.assert_allclose(array.numpy(), expected[name], rtol=1e-4, atol=1e-5)


def main() -> int:
    from tokens import zoo_programs

    done = ran = 0
    for name, program in zoo_programs("mini", None).items():
        plain = all(b.dtype is DType.F32 for b in (*program.inputs, *program.outputs))
        try:
            _check(program, plain and done % 6 == 0)
        except NoBlocks as error:
            print(f"left out: {name}: {error.message}")
            continue
        ran += plain and done % 6 == 0
        done += 1
    print(f"{done} programs have a block form that reads back, is well-formed and schedules; {ran} were run and agree with the evaluator")
    return 0


if __name__ == "__main__":
    sys.exit(main())
