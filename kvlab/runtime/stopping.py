"""Asking workers to stop what they do, without waiting for them: one that is frozen would never answer."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from typing import Any

from kvlab.runtime import tasks

logger = logging.getLogger(__name__)


def ask_to_stop(client: Any, actions: Sequence[str]) -> None:
    """Ask every worker to stop these actions at their next chunk or token. Returns at once."""
    if actions:
        threading.Thread(target=_ask, args=(client, list(actions)), name="kvlab-stop", daemon=True).start()


def _ask(client: Any, actions: list[str]) -> None:
    try:
        client.run(tasks.cancel, actions, wait=False, on_error="ignore")
    except Exception as error:  # noqa: BLE001 - the cluster may be closing under it
        logger.debug("workers could not be asked to stop: %s", error)
