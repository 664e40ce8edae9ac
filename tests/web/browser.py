"""Debian's Chromium without a screen."""

import base64
import os
import pathlib
import shutil

import axe_playwright_python
from selenium import webdriver
from selenium.webdriver.chrome.service import Service

from cluster import eventually

AXE = pathlib.Path(axe_playwright_python.__file__).with_name("axe.min.js")


def missing():
    """Why there is none; None: there is one."""
    return next((f"{x} is not installed" for x in ("chromium", "chromedriver") if not shutil.which(x)), None)


class Browser:
    def __init__(self):
        options = webdriver.ChromeOptions()
        options.binary_location = shutil.which("chromium")
        for x in ("--headless=new", "--disable-dev-shm-usage", "--hide-scrollbars", "--disable-gpu"):
            options.add_argument(x)
        if os.geteuid() == 0:
            options.add_argument("--no-sandbox")
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        self.driver = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))
        self.driver.set_script_timeout(30)

    def close(self):
        self.driver.quit()

    def open(self, url):
        self.driver.get(url)

    def look(self, scheme="light", width=1280, height=900):
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia",
                                    {"features": [{"name": "prefers-color-scheme", "value": scheme}]})
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride",
                                    {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500})

    def js(self, expression, *arguments):
        return self.driver.execute_script(f"return {expression}", *arguments)

    def later(self, script, *arguments):
        """`done(x)` in it gives x."""
        return self.driver.execute_async_script("const done = arguments[arguments.length - 1];" + script, *arguments)

    def count(self, selector):
        return self.js("document.querySelectorAll(arguments[0]).length", selector)

    def open_all(self, yes):
        self.driver.execute_script(
            "document.querySelectorAll('main details').forEach(x => { x.open = arguments[0]; })", yes)

    def text(self, identity):
        return self.js("document.getElementById(arguments[0]).innerText", identity)

    def see(self, identity, part, limit_s=60):
        """Waits until that element's text has this part."""
        try:
            eventually(f"{identity} shows {part!r}", lambda: part in self.text(identity), limit_s)
        except AssertionError as e:
            raise AssertionError(f"{e}; it shows {self.text(identity)!r}") from None

    def terms(self, identity):
        """{term: text} of a list of definitions; the text without its small print."""
        return self.js("Object.fromEntries([...document.querySelectorAll(`#${arguments[0]} > div`)].map(x => "
                       "[x.querySelector('dt').textContent, x.querySelector('dd').firstChild?.textContent ?? '']))",
                       identity)

    def click(self, selector):
        self.js("document.querySelector(arguments[0]).click()", selector)

    def fill(self, identity, text):
        self.js("(x => { x.value = arguments[1]; x.dispatchEvent(new Event('input', { bubbles: true })); })"
                "(document.getElementById(arguments[0]))", identity, text)

    def choose(self, identity, value):
        self.js("(x => { x.value = arguments[1]; x.dispatchEvent(new Event('change')); })"
                "(document.getElementById(arguments[0]))", identity, value)

    def newest(self, figure):
        """What a chart says to those who do not see it."""
        return self.js("document.querySelector(`#${arguments[0]} canvas`).getAttribute('aria-label')", figure)

    def key(self, name):
        more = {"text": "\r"} if name == "Enter" else {}
        for kind in ("keyDown", "keyUp"):
            self.driver.execute_cdp_cmd("Input.dispatchKeyEvent", {
                "type": kind, "key": name, "code": name, **more,
                "windowsVirtualKeyCode": {"Tab": 9, "Enter": 13}[name]})
            more = {}

    def picture(self, file, scheme, width, until=None):
        """Of the whole page, or of what is above the section with that heading."""
        self.look(scheme, width)
        height = self.js("document.documentElement.scrollHeight")
        self.look(scheme, width, height)
        drawn = "[...document.querySelectorAll('canvas')].every(x => Chart.getChart(x) || !x.checkVisibility())"
        eventually("all charts are drawn", lambda: self.js(drawn))
        self.later("requestAnimationFrame(() => requestAnimationFrame(done))")
        if until:
            top = self.js("document.getElementById(arguments[0]).closest('section').getBoundingClientRect().top", until)
            self.look(scheme, width, int(top))
        image = self.driver.execute_cdp_cmd("Page.captureScreenshot", {})["data"]
        pathlib.Path(file).write_bytes(base64.b64decode(image))

    def listeners(self, kind):
        """How many the document has for events of that kind."""
        found = self.driver.execute_cdp_cmd("Runtime.evaluate", {"expression": "document"})["result"]["objectId"]
        has = self.driver.execute_cdp_cmd("DOMDebugger.getEventListeners", {"objectId": found})["listeners"]
        return sum(x["type"] == kind for x in has)

    def messages(self):
        """Of the console since the last call, all levels."""
        return [f"{x['level']} {x['message']}" for x in self.driver.get_log("browser")]

    def violations(self):
        if not self.js("'axe' in window"):
            self.driver.execute_script(AXE.read_text())
        # (Of what is well it then makes no list, which takes a third of the time.)
        found = self.later("axe.run({ resultTypes: ['violations'] })"
                           ".then(done, e => done({ violations: [{ id: String(e), nodes: [] }] }))")
        return [f"{x['id']} {[y['target'] for y in x['nodes']][:3]}" for x in found["violations"]]
