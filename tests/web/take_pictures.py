#!/usr/bin/env python3
"""take_pictures.py URL FOLDER: the README's pictures, of the page at that URL. Needs what deploy/setup fetched, in
PYTHONPATH."""

import pathlib
import sys

from browser import Browser

browser = Browser()
try:
    browser.look()
    browser.open(sys.argv[1])
    browser.see("sentence", "job")
    for scheme, width in (("light", 1100), ("dark", 1100), ("light", 390)):
        browser.picture(pathlib.Path(sys.argv[2], f"page-{scheme}-{width}.png"), scheme, width, "happened")
finally:
    browser.close()
