"""The browser's half: all its files are one module."""

from __future__ import annotations

import re
from collections import Counter

from kvlab_widgets.inspector import client_module


def test_no_name_is_declared_twice() -> None:
    """A second declaration would leave every page empty."""
    lines = re.findall(r"^(?:const|let|class|(?:async )?function) .*", client_module(), re.MULTILINE)
    names = [re.split(r"\W", line.removeprefix("async ").split()[1])[0] for line in lines]
    names += [name for line in lines for name in re.findall(r", ([A-Z][A-Z0-9_]+) = ", line)]
    assert len(names) > 60
    assert [name for name, n in Counter(names).items() if n > 1] == []
