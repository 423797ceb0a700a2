"""A page in headless Chromium, driven by its DevTools protocol over two pipes: no driver and no package is needed."""

import base64
import itertools
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PROGRAMS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
PATIENCE = 60


def program():
    """The Chromium of this machine, or None."""
    return next(filter(None, map(shutil.which, PROGRAMS)), None)


class Page:
    """One page, what it asked for and what its console said.

    Attributes:
        requests: addresses, in order.
        complaints: errors, warnings and what was refused.
    """

    def __init__(self, folder):
        self.requests, self.complaints = [], []
        self._numbers, self._answers, self._rest, self._session = itertools.count(1), {}, b"", None
        to_read, self._write = os.pipe()
        self._read, to_write = os.pipe()
        options = (
            "--headless=new --no-sandbox --disable-gpu --disable-dev-shm-usage --remote-debugging-pipe --no-first-run"
        )
        command = f"exec {program()} {options} --user-data-dir={folder} about:blank 3<&{to_read} 4>&{to_write}"
        self._process = subprocess.Popen(
            ["bash", "-c", command], pass_fds=(to_read, to_write), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        os.close(to_read)
        os.close(to_write)
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method, **parameters):
        """Asks the browser to do something, and waits for its answer."""
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        end = time.monotonic() + PATIENCE
        while number not in self._answers:
            self._listen(end)
        answer = self._answers.pop(number)
        assert "error" not in answer, (method, answer)
        return answer["result"]

    def _listen(self, end):
        ready, _, _ = select.select([self._read], [], [], max(0, end - time.monotonic()))
        data = os.read(self._read, 1 << 20) if ready else b""
        if not data:
            raise TimeoutError("Chromium does not answer.")
        *whole, self._rest = (self._rest + data).split(b"\0")
        for text in whole:
            self._take(json.loads(text))

    def _take(self, message):
        what, told = message.get("method"), message.get("params")
        if "id" in message:
            self._answers[message["id"]] = message
        elif what == "Network.requestWillBeSent":
            self.requests.append(told["request"]["url"])
        elif what == "Log.entryAdded":
            self.complaints.append(told["entry"]["text"])
        elif what == "Runtime.exceptionThrown":
            self.complaints.append(told["exceptionDetails"])
        elif what == "Runtime.consoleAPICalled" and told["type"] in ("error", "warning", "assert"):
            self.complaints.append(told["args"])

    def open(self, path, width=1280, height=900):
        self.size(width, height)
        self.call("Page.navigate", url=path.absolute().as_uri())
        end = time.monotonic() + PATIENCE
        while self.ask("document.readyState") != "complete" or self.ask("location.protocol") != "file:":
            assert time.monotonic() < end
            time.sleep(0.05)

    def size(self, width, height):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def scheme(self, name):
        """What the reader's system prefers: light or dark."""
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": name}])

    def ask(self, expression):
        """The value of an expression of JavaScript."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def move(self, x, y):
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def click(self, selector):
        """Presses the mouse in the middle of an element."""
        self.click_at(*self.middle(selector))

    def click_at(self, x, y):
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def middle(self, selector):
        script = (
            f"(() => {{ const e = document.querySelector({json.dumps(selector)}); "
            "e.scrollIntoView({block: 'center'}); const b = e.getBoundingClientRect(); "
            "return [b.left + b.width / 2, b.top + b.height / 2]; })()"
        )
        return self.ask(script)

    def press(self, key, code=0):
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code)

    def picture(self, path, whole=False):
        data = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)["data"]
        path.write_bytes(base64.b64decode(data))

    def close(self):
        self._session = None
        os.write(self._write, json.dumps({"id": 0, "method": "Browser.close", "params": {}}).encode() + b"\0")
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._write)
        os.close(self._read)


def draw_documentation(report, picture):
    """Draw the picture of the documentation: a wide overview in light colours, and a narrow map in dark ones."""
    from PIL import Image

    with tempfile.TemporaryDirectory() as folder:
        page = Page(folder)
        page.call("Emulation.setScrollbarsHidden", hidden=True)
        parts = []
        for tab, width, scheme in (("overview", 1150, "light"), ("map", 420, "dark")):
            page.scheme(scheme)
            page.open(report, width, 640)
            page.ask(f"document.getElementById('tab-{tab}').click()")
            if tab == "map":
                page.ask("document.querySelector('.points').focus()")
                page.press("ArrowRight", 39)  # the graph in the middle
            parts.append(Path(folder) / f"{tab}.png")
            page.picture(parts[-1])
        page.close()
        wide, narrow = map(Image.open, parts)
        both = Image.new("RGB", (wide.width + 12 + narrow.width, wide.height), "white")
        both.paste(wide, (0, 0))
        both.paste(narrow, (wide.width + 12, 0))
        both.save(picture, optimize=True)


if __name__ == "__main__":  # joao report runs/mutag && python -m tests.report.chromium report.html docs/report.png
    draw_documentation(*map(Path, sys.argv[1:]))
