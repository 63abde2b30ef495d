"""``steptp doctor``: does everything that Step-TP needs work here?"""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from typing import Annotated

import typer

__all__ = ["register"]

_PACKAGES = ("torch", "apache-tvm", "apache-tvm-ffi", "islpy", "python-flint", "numpy", "datasets", "pyarrow", "pydantic", "typer", "rich")

_PROBE = """size N=8 K=8
in A f32[N,K] x[K]
out y f32[N]
for i:N k:K y[i] += A[i,k]*x[k]
"""


def register(app: typer.Typer) -> None:
    @app.command("doctor")
    def doctor(json: Annotated[bool, typer.Option("--json", help="Machine-readable output.")] = False) -> None:
        """Check that everything Step-TP needs works here.

        Versions, the host, the compiler, the evaluators and the isolated workers. Exit status 1 if something fails.
        """
        from steptp.cli.common import console, emit_json

        rows: list[tuple[str, bool, str]] = []
        for name in _PACKAGES:
            try:
                rows.append((name, True, version(name)))
            except PackageNotFoundError:
                rows.append((name, False, "not installed"))
        for label, probe in (("host", _host), ("compiler", _compiler), ("evaluators", _evaluators), ("isolated worker", _worker)):
            rows.append((label, *_run(probe)))
        if json:
            emit_json([{"check": n, "ok": ok, "detail": d} for n, ok, d in rows])
        else:
            from rich.table import Table

            table = Table("", "check", "detail", box=None, pad_edge=False)
            for name, ok, detail in rows:
                table.add_row("[green]ok[/]" if ok else "[red]failed[/]", name, detail)
            console().print(table)
        if not all(ok for _, ok, _ in rows):
            raise typer.Exit(1)


def _run(probe: Callable[[], str]) -> tuple[bool, str]:
    try:
        return True, probe()
    except Exception as err:  # noqa: BLE001 - a doctor reports whatever is wrong
        return False, f"{type(err).__name__}: {str(err).splitlines()[0] if str(err) else ''}"


def _host() -> str:
    from steptp.analysis.host import HostInfo

    host = HostInfo.detect()
    return ", ".join(f"{k} {v}" for k, v in host.to_dict().items())


def _compiler() -> str:
    import numpy as np

    from steptp.ir import parse
    from steptp.lower import BuildOptions, build

    rng = np.random.default_rng(0)
    inputs = {"A": rng.random((8, 8), dtype=np.float32), "x": rng.random(8, dtype=np.float32)}
    got = build(parse(_PROBE), BuildOptions()).run(inputs)["y"]
    if not np.allclose(got, inputs["A"] @ inputs["x"], rtol=1e-5):
        raise RuntimeError("a compiled matrix-vector product gave wrong numbers")
    return "LLVM build and run"


def _evaluators() -> str:
    from steptp.ir import parse
    from steptp.verify.tier3 import tier3
    from steptp.verify.verdict import VerdictKind

    program = parse(_PROBE)
    wrong = parse(_PROBE.replace("A[i,k]*x[k]", "A[i,k]*x[k]+f32(1)"))
    if tier3(program, program, seed=0).kind is not VerdictKind.OK or tier3(program, wrong, seed=0).kind is not VerdictKind.NOT_EQUAL:
        raise RuntimeError("the exact evaluator gave a wrong verdict")
    return "exact reals and NumPy"


def _worker() -> str:
    from steptp.measure.workers import self_test

    return self_test()
