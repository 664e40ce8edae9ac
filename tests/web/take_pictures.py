#!/usr/bin/env python3
"""take_pictures.py URL [FOLDER]: the README's pictures, of the page at that URL, which `parcae demo --web` says; into
runtime/web/pictures, unless another folder is given. Needs what deploy/setup fetched, in PYTHONPATH."""

import pathlib
import sys

from browser import Browser
from cluster import eventually

FOLDER = pathlib.Path(sys.argv[2] if sys.argv[2:] else pathlib.Path(__file__).parents[2] / "runtime/web/pictures")

browser = Browser()
try:
    browser.look()
    browser.open(sys.argv[1])
    browser.see("sentence", "job")
    eventually("a step's parts are drawn", lambda: "exchange" in browser.newest("parts"))
    for scheme in ("light", "dark"):
        browser.picture(FOLDER / f"demo-{scheme}.png", scheme, 1100, "happened")
finally:
    browser.close()
