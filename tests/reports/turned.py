"""Read the page on which the brains of a cohort are turned."""

from __future__ import annotations

import html
import json
import re
from pathlib import Path
from typing import Any

from tests.running import as_copied


def read_brains(page: Path) -> dict[str, dict[str, Any]]:
    """Return what each brain shows, by its title, with its ``anchor`` and the ``cells`` of its table."""
    found = {}
    for part in as_copied(page.read_text(encoding="utf-8")).split('<section class="turned" id="')[1:]:
        anchor, _, rest = part.partition('"')
        title = html.unescape(re.search(r"<h2><bdi>(.*?)</bdi></h2>", rest)[1])
        content = json.loads(re.search(r'<script type="application/json">(.*?)</script>', rest, re.DOTALL)[1])
        lines = re.findall(r"<tr>(.*?)</tr>", rest.partition("<tbody>")[2].partition("</tbody>")[0], re.DOTALL)
        cells = [[html.unescape(cell) for cell in re.findall(r"<bdi>(.*?)</bdi>", line)] for line in lines]
        found[title] = {**content, "anchor": anchor, "cells": cells}
    return found
