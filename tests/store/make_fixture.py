"""Write the fixture of the present format version, once: ``python tests/store/make_fixture.py``.

A fixture is never written again: it is what an old kvlab left behind, and every later one must open it. When
FORMAT_VERSION rises, run this for the new version and keep the old ones.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from review_run import review_events

from kvlab.store.runs import new_run_folder, open_run
from kvlab.store.schema import FORMAT_VERSION

target = Path(__file__).parent / "fixtures" / f"v{FORMAT_VERSION}"
if target.exists():
    sys.exit(f"{target} exists and stays as it is")

events = review_events("state")
with tempfile.TemporaryDirectory() as scratch:
    folder = new_run_folder("review", lambda: events[0].time_ns, root=scratch)
    folder.write_config({"command": "tests/store/make_fixture.py", "format_version": FORMAT_VERSION})
    for start in range(0, len(events), 25):
        folder.log.append(events[start : start + 25])
        folder.log.flush()
    folder.complete()
    folder.logs.rmdir()
    shutil.copytree(folder.path, target)

world = open_run(target).world
expected = {
    "n_events": world.n_events,
    "peak_kv_bytes": world.peak_kv_bytes,
    "bytes_moved": world.bytes_moved,
    "wall_seconds": world.wall_seconds,
    "rows": {name: len(rows) for name, rows in world.rows.items()},
    "texts": {row["agent"]: row["text"] for row in world.rows["turns"]},
    "decisions": {row["edge"]: [row["chosen"], row["actual_how"]] for row in world.rows["edges"]},
}
(target / "expected.json").write_text(json.dumps(expected, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
