"""Running the command in this process, through its real entry point."""

from __future__ import annotations

import contextlib
import io
import json
import sys
from dataclasses import dataclass
from typing import Any
from unittest import mock

from steptp.cli import main

__all__ = ["MATMUL", "Ran", "steptp"]

MATMUL = """size N=8 K=6 L=5
in A f32[N,K] B f32[K,L] b f32[L]
out Y f32[N,L]
tmp C f32[N,L]
for i:N for j:L for k:K C[i,j] += A[i,k]*B[k,j]
for i:N for j:L Y[i,j] = max(C[i,j]+b[j],0)
"""


@dataclass(frozen=True)
class Ran:
    """Exit status, standard output, standard error."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


def steptp(*args: object) -> Ran:
    """``steptp ARGS…``; whatever happens, there is no traceback and no internal error."""
    out, err, code = io.StringIO(), io.StringIO(), 0
    with mock.patch.object(sys, "argv", ["steptp", *map(str, args)]), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main()
        except SystemExit as stop:
            code = stop.code if isinstance(stop.code, int) else 0 if stop.code is None else 1
    ran = Ran(code, out.getvalue(), err.getvalue())
    assert "Traceback" not in ran.err + ran.out
    assert "error[internal]" not in ran.err, ran.err
    return ran
