"""Run in a process of its own: append under a limit on the size of files until there is no room, lift it, go on."""

from __future__ import annotations

import json
import resource
import sys

from kvlab.errors import NoRoom
from kvlab.store.events import Event, Kind
from kvlab.store.log import EventLog, read_log, whole_length

log = EventLog(sys.argv[1])
_, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, hard))
appended, rows_before, message = 0, 0, ""
while not message and appended < 10_000:
    appended += 1
    try:
        log.append([Event(Kind.NOTE, appended, "test", appended, detail={"text": "y" * 500})])
        log.flush()
        rows_before = read_log(log.path).num_rows
    except NoRoom as error:
        message = str(error)
full = read_log(log.path).num_rows
whole = whole_length(log.path) == log.path.stat().st_size
resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
log.close()
told = {
    "message": message,
    "appended": appended,
    "rows_before": rows_before,
    "rows_when_full": full,
    "whole_batches_only": whole,
}
sys.stdout.write(json.dumps(told))
