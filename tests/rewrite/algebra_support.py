"""What the tests of the algebra family share: programs around one expression, and the checks of their sites."""

from __future__ import annotations

from rewrite_support import all_applied, assert_class, check_step, program

from steptp.analysis.host import HostInfo
from steptp.reason import explain
from steptp.reason.checker import check_text

HOST = HostInfo.detect()

NORM = """size N=3 K=4
in x f32[N,K] w[K] b[K]
out Y f32[N,K]
tmp s f32[N] m[N] v[N]
for i:N k:K s[i] += x[i,k]
for i:N m[i] = s[i]/4
for i:N k:K v[i] += (x[i,k]-m[i])*(x[i,k]-m[i])
for i:N k:K Y[i,k] = (x[i,k]-m[i])*rsqrt(v[i]/f32(K)+1e-5)*w[k]+b[k]
"""
LOG_SOFTMAX = """size N=3 K=4
in x f32[N,K]
out Y f32[N,K]
tmp m f32[N] s[N]
for i:N k:K m[i] max= x[i,k]
for i:N k:K s[i] += exp(x[i,k]-m[i])
for i:N k:K Y[i,k] = x[i,k]-m[i]-log(s[i])
"""
GELU_TANH = "size N=5\nin x f32[N]\nout Y f32[N]\nfor i:N Y[i] = 0.5*x[i]*(1+tanh(0.8*(x[i]+0.04*(x[i]*x[i]*x[i]))))\n"
LEAKY = "size N=5\nin x f32[N]\nout Y f32[N]\nfor i:N Y[i] = select(x[i]>0,x[i],x[i]*0.1)\n"
SMOOTH = "size N=5\nin x f32[N] y f32[N]\nout Y f32[N]\nfor i:N Y[i] = select(abs(x[i]-y[i])<0.5,abs(x[i]-y[i])*0.5*abs(x[i]-y[i])/0.5,abs(x[i]-y[i])-0.25)\n"
SCALE = "size N=3 K=4\nin A f32[N,K]\nout Y f32[N,K]\nfor i:N k:K Y[i,k] = A[i,k]*(1/sqrt(f32(K)))\n"


def stored(value: str, dtype: str = "f32") -> str:
    """A program that stores one expression over the inputs x, y, z and w."""
    return f"size N=4\nin x {dtype}[N] y {dtype}[N] z {dtype}[N] w {dtype}[N]\nout Y {dtype}[N]\nfor i:N Y[i] = {value}\n"


def check_sites(strategy: str, texts: list[str]) -> int:
    """Every site of the strategy in these programs keeps the meaning, and its explanation can be derived again; how many there are."""
    count = 0
    for text in texts:
        subject = program(text)
        for site, step in all_applied(strategy, subject):
            assert_class(strategy, step)
            check_step(subject, site, step, seed=count)
            why = explain(subject, step, site, candidates=[site], rule="balanced-random", host=HOST, seed=count)
            assert check_text(why.text, subject, step.program, site.id, candidates=[site.id], host=HOST.to_dict()) == (), why.text
            count += 1
    return count
