"""Properties of text, canonical form and parser over random programs and random texts."""

from __future__ import annotations

import random

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from leir_alpha import alpha_rename
from leir_fuzz import fuzz
from leir_gen import programs, random_program

from steptp.ir import Loop, Program, alpha_equal, canonical, diff_lines, materialize, parse, print_program, problems, program_hash, rebind, shape_hash
from steptp.ir.walk import visit

SLOW = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])


@SLOW
@given(programs())
def test_text_reads_back_with_equal_hash(program: Program) -> None:
    assert problems(program) == ()
    text = print_program(program)
    assert parse(print_program(canonical(program))) == canonical(program)
    again = parse(text)
    assert again == program
    assert print_program(again) == text
    assert (program_hash(again), shape_hash(again)) == (program_hash(program), shape_hash(program))


@SLOW
@given(programs(), st.integers(0, 2**32))
def test_hashes_ignore_names(program: Program, seed: int) -> None:
    renamed = alpha_rename(program, random.Random(seed))
    assert problems(renamed) == ()
    assert alpha_equal(program, renamed)
    assert program_hash(renamed) == program_hash(program)
    assert shape_hash(renamed) == shape_hash(program)


@SLOW
@given(programs())
def test_canonical_form_is_valid_and_stable(program: Program) -> None:
    form = canonical(program)
    assert problems(form) == ()
    assert canonical(parse(print_program(form))) == form
    assert program_hash(form) == program_hash(program)


def test_seeded_programs() -> None:
    """300 programs: all valid, all different, all reading back, materialised forms too; every loop kind for the CPU and every statement occurs."""
    texts, seen = set(), set()
    for seed in range(300):
        program = random_program(seed)
        assert problems(program) == ()
        text = print_program(program)
        assert parse(text) == program
        assert program == random_program(seed)
        explicit = materialize(program).program
        assert problems(explicit) == ()
        assert parse(print_program(explicit)) == explicit
        assert [line.text for line in diff_lines(program, explicit) if line.new is not None] == print_program(explicit).splitlines()
        texts.add(text)
        seen |= {m.stmt.kind.value if isinstance(m.stmt, Loop) else type(m.stmt).__name__ for m in visit(program)}
    assert len(texts) > 290
    assert seen == {"for", "par", "vec", "unroll", "If", "Store"}


def test_rebinding_keeps_the_shape_hash() -> None:
    for seed in range(40):
        program = random_program(seed)
        other = rebind(program, {"N": program.size_env["N"] + 1})
        assert shape_hash(other) == shape_hash(program)
        assert (program_hash(other) == program_hash(program)) == alpha_equal(other, program)


def test_broken_texts_give_errors_with_code_line_and_caret() -> None:
    report = fuzz(3000, seed=1)
    assert report.texts == 3000
    assert report.tracebacks == []
    assert report.parsed > 100
    assert len(report.errors_by_code) >= 15
