"""A headless Chromium for tests, driven over its DevTools pipe: no port, no network, and one local page."""

from __future__ import annotations

import base64
import contextlib
import itertools
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

PATIENCE = 60.0  # seconds for one answer; never reached unless something is broken

FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync", "--disable-dev-shm-usage", "--hide-scrollbars", "--remote-debugging-pipe"),
)

# DevTools uses the descriptors 3 and 4. Move both away first: one of them may be the source of the other.
_AT_3_AND_4 = (
    "import fcntl, os, sys; a, b = (fcntl.fcntl(int(n), fcntl.F_DUPFD, 10) for n in sys.argv[1:3]); "
    "os.dup2(a, 3); os.dup2(b, 4); os.execv(sys.argv[3], sys.argv[3:])"
)


def chromium_program() -> str | None:
    """Return the path of Chromium, or None."""
    return shutil.which("chromium") or shutil.which("chromium-browser")


def why_no_chromium() -> str | None:
    """Return why no browser can run, or None. In CI a missing browser is an error: `.ci/run` installs it."""
    if chromium_program() is not None:
        return None
    if os.environ.get("CI"):
        raise AssertionError("chromium must be there where CI is set: install chromium")
    return "no chromium on this machine (Debian: chromium)"


class Page:
    """An open page. `faults` are exceptions, refusals by its policy and errors in its log; `requests` are the URLs that it loads."""

    def __init__(self, browser: Chromium, session: str) -> None:
        self._browser = browser
        self._session = session
        self.faults: list[str] = []
        self.requests: list[str] = []
        self.is_loaded = False

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Call a DevTools method and return its result."""
        return self._browser.call(method, session=self._session, **parameters)

    def heard(self, method: str, parameters: dict[str, Any]) -> None:
        """Take an event of the page."""
        if method == "Runtime.exceptionThrown":
            self.faults.append(json.dumps(parameters["exceptionDetails"]))
        elif method == "Log.entryAdded" and parameters["entry"]["level"] == "error":
            self.faults.append(parameters["entry"]["text"])
        elif method == "Page.loadEventFired":
            self.is_loaded = True
        elif method == "Network.requestWillBeSent":
            self.requests.append(parameters["request"]["url"])

    def run(self, expression: str) -> Any:
        """Return the value of a JavaScript expression, or the result of a promise."""
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in result, json.dumps(result["exceptionDetails"])
        return result["result"].get("value")

    def until(self, expression: str) -> Any:
        """Wait until an expression is true and return its value; fail when it never is."""
        value = self.run(
            f"new Promise(done => {{ const last = Date.now() + {PATIENCE / 2 * 1000}, ask = () => {{ const is = ({expression}); "
            "is || Date.now() > last ? done(is) : setTimeout(ask, 20); }; ask(); })"
        )
        assert value, f"never came true: {expression}"
        return value

    def resize(self, width: int, height: int, *, dark: bool = False) -> None:
        """Set the size of the window, and the preference for dark or light."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])

    def press(self, key: str, *, text: str = "") -> None:
        """Press and release a key."""
        for kind in ("keyDown", "keyUp"):
            more = {"text": text} if text and kind == "keyDown" else {}
            self.call("Input.dispatchKeyEvent", type=kind, key=key, **more)

    def screenshot(self) -> bytes:
        """Return a screenshot as PNG."""
        return base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"])


class Chromium:
    """A running browser."""

    def __init__(self, commands: int, answers: int) -> None:
        self._commands = commands
        self._answers = answers
        self._ids = itertools.count(1)
        self._rest = b""
        self._pages: dict[str, Page] = {}

    def call(self, method: str, *, session: str | None = None, **parameters: Any) -> dict[str, Any]:
        number = next(self._ids)
        command: dict[str, Any] = {"id": number, "method": method, "params": parameters}
        if session is not None:
            command["sessionId"] = session
        data = json.dumps(command).encode() + b"\0"
        while data:
            data = data[os.write(self._commands, data) :]
        while (message := self._hear(method)).get("id") != number:
            pass
        assert "error" not in message, f"{method}: {message['error']}"
        return dict(message["result"])

    def _hear(self, what: str) -> dict[str, Any]:
        message = self._next(what)
        page = self._pages.get(message.get("sessionId", ""))
        if page is not None and "method" in message:
            page.heard(message["method"], message["params"])
        return message

    def _next(self, what: str) -> dict[str, Any]:
        deadline = time.monotonic() + PATIENCE
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._answers], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, f"chromium has not answered {what} in {PATIENCE:g} s"
            data = os.read(self._answers, 2**20)
            assert data, f"chromium ended at {what}"
            self._rest += data
        line, self._rest = self._rest.split(b"\0", 1)
        return dict(json.loads(line))

    @contextlib.contextmanager
    def open(
        self,
        path: Path | str,
        *,
        width: int = 1280,
        height: int = 900,
        dark: bool = False,
        fragment: str = "",
        ready: str = "document.documentElement.dataset.ready",
    ) -> Iterator[Page]:
        """Open a page from a file, or at a URL, and wait until `ready` is true: by default, until the script of `inspect` has ended."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = self._pages[session] = Page(self, session)
        for domain in ("Page", "Runtime", "Log", "Network"):
            page.call(f"{domain}.enable")
        page.resize(width, height, dark=dark)
        page.call("Emulation.setFocusEmulationEnabled", enabled=True)
        page.call("Page.navigate", url=(path if isinstance(path, str) else path.as_uri()) + fragment)
        self._wait_for(page, ready)
        try:
            yield page
        finally:
            del self._pages[session]
            self.call("Target.closeTarget", targetId=target)

    def reload(self, page: Page) -> None:
        """Load the page again, and wait until its script has ended."""
        page.is_loaded = False
        page.call("Page.reload")
        self._wait_for(page, "document.documentElement.dataset.ready")

    def _wait_for(self, page: Page, ready: str) -> None:
        while not page.is_loaded:  # before that, an expression could run in the previous document
            self._hear("the page")
        page.until(ready)


@contextlib.contextmanager
def running_chromium() -> Iterator[Chromium]:
    """A browser with a profile of its own, until the end of the block."""
    program = chromium_program()
    assert program is not None
    with tempfile.TemporaryDirectory(prefix="chromium-", ignore_cleanup_errors=True) as folder:
        from_us, to_us = os.pipe(), os.pipe()
        command = [sys.executable, "-c", _AT_3_AND_4, str(from_us[0]), str(to_us[1]), program, *FLAGS, f"--user-data-dir={folder}/profile"]
        process = subprocess.Popen(
            [*command, "about:blank"],
            pass_fds=(from_us[0], to_us[1]),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={"PATH": os.environ.get("PATH", "/usr/bin:/bin"), "HOME": folder, "LANG": "C.UTF-8"},
            start_new_session=True,
        )
        os.close(from_us[0])
        os.close(to_us[1])
        try:
            yield Chromium(from_us[1], to_us[0])
        finally:
            os.close(from_us[1])  # the browser ends when its command pipe is closed
            os.close(to_us[0])
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, 9)
                process.wait()
