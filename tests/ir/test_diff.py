"""Program differences."""

from __future__ import annotations

from steptp.ir import DiffKind, diff_lines, parse, print_program, render_diff

A = parse("size N=4 M=3\nin A f32[N,M]\nout Y f32[N]\ntmp s f32[N]\nfor i:N j:M s[i] += A[i,j]\nfor i:N Y[i] = s[i]/f32(M)\n")
B = parse("size N=4 M=3\nin A f32[N,M]\nout Y f32[N]\ntmp s f32[N]\nfor j:M i:N s[i] += A[i,j]\npar i:N Y[i] = s[i]/f32(M)\n")


def test_equal_programs_have_only_common_lines() -> None:
    lines = diff_lines(A, A)
    assert {line.kind for line in lines} == {DiffKind.SAME}
    assert [line.text for line in lines] == print_program(A).splitlines()
    assert [(line.old, line.new) for line in lines] == [(n, n) for n in range(1, 6)]
    assert diff_lines(A, A, context=1) == ()


def test_both_texts_can_be_read_off_the_lines() -> None:
    lines = diff_lines(A, B)
    assert [line.text for line in lines if line.old is not None] == print_program(A).splitlines()
    assert [line.text for line in lines if line.new is not None] == print_program(B).splitlines()
    assert [line.old for line in lines if line.old] == list(range(1, 6))
    assert [line.new for line in lines if line.new] == list(range(1, 6))


def test_changed_words_are_marked() -> None:
    removed = [line for line in diff_lines(A, B) if line.kind is DiffKind.REMOVED]
    added = [line for line in diff_lines(A, B) if line.kind is DiffKind.ADDED]
    assert [[line.text[a:b] for a, b in line.marks] for line in removed] == [[" j"], ["for"]]
    assert [[line.text[a:b] for a, b in line.marks] for line in added] == [["j "], ["par"]]


def test_rendered_difference() -> None:
    assert render_diff(A, B, context=1).splitlines() == [
        "  ...",
        "  tmp s[N]",
        "- for i j s[i]+=A[i,j]",
        "       ^^",
        "- for i Y[i]=s[i]/f32(M)",
        "  ^^^",
        "+ for j i s[i]+=A[i,j]",
        "      ^^",
        "+ par i Y[i]=s[i]/f32(M)",
        "  ^^^",
    ]


def test_lines_without_a_likeness_are_not_marked() -> None:
    other = parse("out Z bool[]\nZ[] = true\n")
    assert all(line.marks == () for line in diff_lines(A, other) if line.text.startswith(("for", "Z[]")))


def test_long_runs_are_paired_by_position() -> None:
    many = "size N=4\nout Y f32[N]\n" + "\n".join(f"Y[{n % 4}] = {n}" for n in range(60))
    more = many.replace("Y[", "X[").replace("out Y", "out X")
    lines = diff_lines(parse(many), parse(more))
    assert sum(bool(line.marks) for line in lines) == 2 * 61
