"""A host margin as a file, so that tests need not measure one."""

from __future__ import annotations

import json
import time
from pathlib import Path

from steptp.measure.host import host_key
from steptp.measure.margin import HostMargin

__all__ = ["keep_margin"]


def keep_margin(folder: Path) -> None:
    """Write ``journal/margin.json`` below the folder of a search."""
    (folder / "journal").mkdir(parents=True)
    margin = HostMargin(0.05, 30, 0.01, 0.02, 0.04, 0.05, 0, 1.0, host_key(), time.time())
    (folder / "journal" / "margin.json").write_text(json.dumps(margin.to_json()))
