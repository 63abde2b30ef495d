#!/usr/bin/env bash
# The demo: build a verified, partly measured step dataset from small workloads, your own file among them.
set -euo pipefail
cd "$(dirname "$0")/.."
out="${DEMO_OUT:-demo-out}"
exec .venv/bin/steptp build \
  examples/my_model.py:Model --preset demo \
  --out "$out" --steps 1000 --measured 300 --seed 0 --variants 1 --jobs "${JOBS:-2}"
