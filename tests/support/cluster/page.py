"""The commands of docs/spark-cluster.md, as somebody types them who has read the page."""

from __future__ import annotations

import re

from tests.support.cluster.wheel import ROOT


def command_of_page(beginning: str, **words: object) -> str:
    """The one command of the page that has this text, with the reader's own words for the page's placeholders.

    A comment after the command is left out. A placeholder is a whole word: HOST, STORE, 7077.
    """
    page = (ROOT / "docs" / "spark-cluster.md").read_text()
    (line,) = (line for line in page.splitlines() if line.startswith("    ") and beginning in line)
    command = re.sub(r"\s+#.*", "", line).strip()
    for placeholder, value in words.items():
        command, count = re.subn(rf"\b{placeholder.strip('_')}\b", str(value), command)
        assert count, f"{placeholder} is not in {line}"
    return command
