"""Parse broken texts and count what comes back; any traceback is a failure.

Usage: python benchmarks/fuzz_parser.py [texts] [seed]
The last line is one JSON object: {"texts", "parsed", "errors_by_code", "tracebacks"}.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tests" / "support")]

from leir_fuzz import fuzz  # noqa: E402


def main() -> int:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else 0
    start = time.perf_counter()
    report = fuzz(count, seed)
    print(f"{count} texts in {time.perf_counter() - start:.1f} s")
    for text, why in report.tracebacks[:10]:
        print(f"--- {why}\n{text[:400]!r}")
    by_code = dict(sorted(report.errors_by_code.items(), key=lambda item: -item[1]))
    print(json.dumps({"texts": report.texts, "parsed": report.parsed, "errors_by_code": by_code, "tracebacks": len(report.tracebacks)}))
    return 1 if report.tracebacks else 0


if __name__ == "__main__":
    sys.exit(main())
