from __future__ import annotations

from steptp.frontend.skeleton import skeleton, skeleton_hash
from steptp.ir import parse

MATMUL = "size N=4 K=5 M=3\nin A f32[N,K] B[K,M]\nout C f32[N,M]\nfor i:N j:M k:K C[i,j] += A[i,k]*B[k,j]\n"


def _pointwise(value: str) -> str:
    return f"size N=4\nin X f32[N]\nout Y f32[N]\nfor i:N Y[i] = {value}\n"


def _same(a: str, b: str) -> bool:
    equal = skeleton(parse(a)) == skeleton(parse(b))
    assert equal == (skeleton_hash(parse(a)) == skeleton_hash(parse(b)))
    return equal


def test_sizes_dtypes_and_names_are_erased() -> None:
    assert _same(MATMUL, MATMUL.replace("N=4", "N=64"))
    assert _same(MATMUL, "size P=9\nin L f64[P,P] R[P,P]\nout Z f64[P,P]\nfor a:P b:P c:P Z[a,b] += L[a,c]*R[c,b]\n")
    half = MATMUL.replace("A f32", "A f16").replace("A[i,k]*B[k,j]", "f32(A[i,k])*f32(B[k,j])")
    assert _same(MATMUL, half)


def test_a_nest_that_only_rounds_goes() -> None:
    rounded = MATMUL.replace("f32[N,M]", "f16[N,M]\ntmp T f32[N,M]").replace("C[i,j] +=", "T[i,j] +=") + "for i:N j:M C[i,j] = f16(T[i,j])\n"
    assert _same(MATMUL, rounded)
    assert not _same(MATMUL, rounded.replace("f16(T[i,j])", "f16(T[i,j]*T[i,0])"))


def test_pointwise_functions_and_constants_are_erased() -> None:
    assert _same(_pointwise("max(X[i],0)"), _pointwise("0.5*X[i]*(1+erf(X[i]/1.4))"))
    assert _same(_pointwise("X[i]+1"), _pointwise("tanh(X[i])"))


def test_structure_is_kept() -> None:
    transposed = MATMUL.replace("B[k,j]", "B[j,k]").replace("B[K,M]", "B[M,K]")
    assert not _same(MATMUL, transposed)
    assert not _same(MATMUL, MATMUL.replace("+=", "max="))
    assert not _same(MATMUL, MATMUL.replace("for i:N j:M k:K", "for j:M i:N k:K"))
    assert not _same(MATMUL, MATMUL.replace("*B[k,j]", "*B[k,j]*A[i,k+0*j]").replace("*A[i,k+0*j]", "*A[k-k,k]"))
    assert not _same(_pointwise("X[i]"), _pointwise("select(i<2,X[i],0)"))


def test_strides_and_offsets_are_erased_but_not_what_an_index_adds_up() -> None:
    window = "size N=9 K=3 M=4\nin X f32[N]\nout Y f32[M]\nfor i:M k:K Y[i] += X[{}]\n"
    assert _same(window.format("2*i+k"), window.format("i+2*k"))
    assert _same(window.format("i+k"), window.format("i+k+1"))
    assert not _same(window.format("i+k"), window.format("k"))
    assert not _same(window.format("i+k"), window.format("(i+k)//2"))


def test_look_ups_are_kept() -> None:
    text = "size N=4 V=6\nin T i64[N] 0..V W f32[V]\nout Y f32[N]\nfor i:N Y[i] = W[{}]\n"
    assert not _same(text.format("T[i]"), text.format("i"))
