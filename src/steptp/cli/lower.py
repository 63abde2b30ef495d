"""``steptp lower X``: LEIR, TVMScript, LLVM IR, assembly or CUDA source."""

from __future__ import annotations

from enum import Enum
from typing import Annotated

import typer

__all__ = ["register"]


class Form(str, Enum):
    LEIR = "leir"
    TVMSCRIPT = "tvmscript"
    LLVM = "llvm"
    ASM = "asm"
    CUDA = "cuda"


def register(app: typer.Typer) -> None:
    @app.command("lower")
    def lower(
        program: Annotated[str, typer.Argument(help="x.leir, file.py:Class, module:Class, einsum:… or zoo:name")],
        emit: Annotated[Form, typer.Option("--emit", "-e", help="What to print.")] = Form.TVMSCRIPT,
        fma: Annotated[bool, typer.Option(help="Allow FMA contraction (release builds do; bit comparison does not).")] = True,
        preset: Annotated[str | None, typer.Option(help="Preset of a zoo workload.")] = None,
    ) -> None:
        """Print a program at some level of lowering."""
        from steptp.cli.common import read_program
        from steptp.ir import print_program

        subject = read_program(program, preset)
        if emit is Form.LEIR:
            typer.echo(print_program(subject))
            return
        from steptp import lower as low

        options = low.BuildOptions(fma=fma)
        render = {Form.TVMSCRIPT: low.tvmscript, Form.LLVM: low.llvm_ir, Form.ASM: low.assembly, Form.CUDA: low.cuda_source}[emit]
        typer.echo(render(subject) if emit in (Form.TVMSCRIPT, Form.CUDA) else render(subject, options))
