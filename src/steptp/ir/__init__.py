"""LEIR: the loop-expression intermediate representation (``docs/leir.md``)."""

from __future__ import annotations

from steptp.ir.canonical import alpha_equal, canonical, program_hash, shape_hash
from steptp.ir.checks import CHECKS, check, problems
from steptp.ir.diff import DiffKind, DiffLine, diff_lines, render_diff
from steptp.ir.facts import Fact
from steptp.ir.index import ix, same_index, simplify_cond, simplify_index
from steptp.ir.lexer import RESERVED, is_name
from steptp.ir.nodes import (
    Body,
    Buffer,
    Cast,
    Const,
    Expr,
    If,
    Load,
    Loop,
    Op,
    Path,
    Program,
    Size,
    SizeDecl,
    Stmt,
    Store,
    Var,
    call,
    cast,
    const,
    identity_of,
    op,
    select,
)
from steptp.ir.ops import OPS, REDUCERS
from steptp.ir.parser import parse, parse_expr, place_of
from steptp.ir.printer import print_expr, print_program, print_stmt
from steptp.ir.resets import materialize, reset_plan
from steptp.ir.sizes import eval_index, eval_size, rebind, shape_of
from steptp.ir.types import DType, LoopKind, Scope

__all__ = [
    "Body", "Buffer", "Cast", "Const", "Expr", "If", "Load", "Loop", "Op", "Path", "Program", "Size", "SizeDecl", "Stmt",
    "Store", "Var", "call", "cast", "const", "identity_of", "op", "select", "OPS", "REDUCERS", "materialize", "reset_plan",
    "eval_index", "eval_size", "rebind", "shape_of", "DType", "LoopKind", "Scope", "Fact", "ix", "same_index",
    "simplify_cond", "simplify_index", "check", "problems", "parse", "parse_expr", "place_of", "print_expr", "print_program",
    "print_stmt", "RESERVED", "is_name", "alpha_equal", "canonical", "program_hash", "shape_hash", "CHECKS", "DiffKind", "DiffLine",
    "diff_lines", "render_diff",
]  # fmt: skip
