"""Every number that a figure of a page says, in its text or where the pointer rests, held against its tables."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import numpy as np
import pandas as pd

NUMBER = re.compile(r"(?<![\w^.])[+-]?\d[\d,]*(?:\.\d+)?(?:e-?\d+)?(?![\w.]*\w)")
NAMES = re.compile(r"FC\^[\d.]+|95 %|\d+ %(?= (?:CI|interval))")
PANEL = re.compile(r'<(?:section|details) class="panel.*?</(?:section|details)>', re.S)
TITLE = re.compile(r"<title>([^<]*)</title>")
IMAGE = re.compile(r'<img src="data:image/svg\+xml,([^"]*)" alt="([^"]*)"')


FOLDS = ("fold", "repeat", "draw", "chosen", "n_train", "n_test", "at_grid_edge")
KEYS = ("minutes", "alpha", "n_people")


def value(word: str) -> float:
    return float(word.replace(",", ""))


def numbers_in(table: pd.DataFrame) -> Iterator[np.ndarray]:
    """Yield all numbers of a table, those within its words, how many rows it has, and means over its folds."""
    yield np.array([float(len(table))])
    for name in table:
        if pd.api.types.is_numeric_dtype(table[name]):
            yield table[name].dropna().to_numpy(float)
        else:
            yield np.array([value(one) for one in NUMBER.findall(" ".join(map(str, table[name].dropna().unique())))])
    if "representation" in table:
        groups = table.groupby("representation")
        yield groups.size().to_numpy(float)
        yield groups.sum(numeric_only=True).to_numpy(float).ravel()
    if not {"fold", "draw"} & set(table):
        return
    floats = [name for name in table.select_dtypes("float") if name not in KEYS]
    keys = [name for name in table if name not in (*floats, *FOLDS)]
    means = table.groupby(keys, dropna=False)[floats].mean()
    yield means.to_numpy().ravel()
    names = [name for name in ("target", "representation") if name in keys]
    if names:
        yield means.groupby(names).mean().to_numpy().ravel()


def unchecked_figures(path: Path) -> list[str]:
    """Return the texts of figures with a number that none of their tables has, as rounded or as a percentage.

    What the words of the page say too, with a title or not, is left to the other tests.
    """
    page, left = path.read_text(encoding="utf-8"), []
    visible = re.sub(r"\s+", " ", html.unescape(re.sub(r"<[^>]+>", "", page)))
    for panel in PANEL.findall(page):
        if not (image := IMAGE.search(panel)):
            continue
        links = re.findall(r'href="([^"]+\.tsv)"', panel.partition('<p class="source">')[2])
        known = [np.empty(0)]
        for one in links:
            place = path.parent / html.unescape(one)
            known += numbers_in(pd.read_csv(place, sep="\t", na_values="n/a", keep_default_na=False))
        there = np.concatenate(known)
        for said in (html.unescape(one) for one in (image[2], *TITLE.findall(unquote(image[1])))):
            if any(each and each in visible for each in (said, said.partition(": ")[2])):
                continue
            for word in NUMBER.findall(NAMES.sub("", said)):
                half = 0.5000001 * 10.0 ** -len(word.partition(".")[2])
                if not any((np.abs(factor * there - value(word)) <= half).any() for factor in (1, 100)):
                    left.append(f"{word} in {said[:120]}")
    return left


def check_in_browser(opened: Any, page: Path, images: int, words: int) -> set[str]:
    """Check a page that is open: silent, complete, no wider than a laptop; return its links to its own parts."""
    assert opened.messages == []
    assert [url for url in opened.requests if not url.startswith("data:")] == [page.absolute().as_uri()]
    shown = opened.evaluate("[...document.images].map((one) => [one.complete, one.naturalWidth, one.alt])")
    assert len(shown) >= images
    assert all(complete and width > 100 and len(alt) > words for complete, width, alt in shown)
    assert opened.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    wide = "[...document.querySelectorAll('.scroll')].filter((one) => one.scrollWidth > one.clientWidth)"
    assert opened.evaluate(f"{wide}.every((one) => one.tabIndex === 0)")
    links = set(opened.evaluate("[...document.querySelectorAll('a')].map((one) => one.getAttribute('href'))"))
    inside = {link for link in links if link.startswith("#")}
    assert opened.evaluate(f"{json.dumps(sorted(inside))}.every((link) => document.getElementById(link.slice(1)))")
    assert [link for link in links - inside if not (page.parent / link).is_file()] == []
    return inside
