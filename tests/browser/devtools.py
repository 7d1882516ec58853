"""A browser without a window, driven by the DevTools protocol over two pipes: it needs Chromium and nothing else."""

from __future__ import annotations

import base64
import fcntl
import json
import os
import select
import shutil
import signal
import time
from pathlib import Path
from typing import Any

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
FLAGS = ("headless=new", "remote-debugging-pipe", "no-sandbox", "no-first-run", "disable-gpu", "disable-sync",
         "mute-audio", "disable-background-networking", "disable-component-update", "hide-scrollbars")  # fmt: skip
PATIENCE = 120.0  # seconds for an answer: the machine may be busy


class Browser:
    """A browser process; `Browser.page` opens a file in it."""

    def __init__(self, profile: Path) -> None:
        program = next((found for name in BROWSERS if (found := shutil.which(name))), None)
        if program is None:
            raise RuntimeError(f"these tests need a browser: install one of {', '.join(BROWSERS)}")
        ours, theirs = os.pipe(), os.pipe()  # what we say, what it says
        ends = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in (ours[0], theirs[1])]  # neither is 3 or 4 yet
        quiet = [(os.POSIX_SPAWN_OPEN, out, os.devnull, os.O_WRONLY, 0o600) for out in (1, 2)]
        actions = [(os.POSIX_SPAWN_DUP2, end, place) for end, place in zip(ends, (3, 4), strict=True)] + quiet
        command = [program, *(f"--{flag}" for flag in FLAGS), f"--user-data-dir={profile}", "about:blank"]
        self.process = os.posix_spawn(program, command, dict(os.environ), file_actions=actions)
        for end in (*ends, ours[0], theirs[1]):
            os.close(end)
        self.say, self.hear = ours[1], theirs[0]
        self.rest, self.count, self.events = b"", 0, []

    def send(self, method: str, session: str | None = None, **params: Any) -> dict[str, Any]:
        """Asks for something and waits for the answer; what happens meanwhile goes to ``events``."""
        self.count += 1
        question = {"id": self.count, "method": method, "params": params} | ({"sessionId": session} if session else {})
        os.write(self.say, json.dumps(question).encode() + b"\0")
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            answer = self.listen(deadline)
            if answer.get("id") == self.count:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']['message']}")
                return answer["result"]
            self.events.append(answer)
        raise TimeoutError(f"the browser did not answer {method}")

    def listen(self, deadline: float) -> dict[str, Any]:
        """The next message."""
        while b"\0" not in self.rest:
            ready, _, _ = select.select([self.hear], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                raise TimeoutError("the browser says nothing")
            part = os.read(self.hear, 1 << 20)
            if not part:
                raise RuntimeError("the browser has ended")
            self.rest += part
        message, _, self.rest = self.rest.partition(b"\0")
        return json.loads(message)

    def page(
        self, path: Path, *, width: int = 1280, height: int = 900, dark: bool = False, touch: bool = False
    ) -> Page:
        """Opens a file in a window of some size."""
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = Page(self, session, target)
        for domain in ("Page", "Runtime", "Network", "Log"):
            page.send(f"{domain}.enable")
        page.send("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=touch)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        page.send("Emulation.setEmulatedMedia", features=[scheme])
        failed = page.send("Page.navigate", url=path.resolve().as_uri()).get("errorText")
        if failed:
            raise RuntimeError(f"cannot open {path}: {failed}")
        page.wait("document.querySelector('html.ready') !== null")
        return page

    def close(self) -> None:
        """Ends the process."""
        try:
            self.send("Browser.close")
        except (OSError, RuntimeError, TimeoutError):
            os.kill(self.process, signal.SIGKILL)
        os.waitpid(self.process, 0)
        os.close(self.say)
        os.close(self.hear)


class Page:
    """A page that is open, and what a person does with it."""

    def __init__(self, browser: Browser, session: str, target: str) -> None:
        self.browser, self.session, self.target = browser, session, target

    def send(self, method: str, **params: Any) -> dict[str, Any]:
        """Asks the page's own part of the browser."""
        return self.browser.send(method, self.session, **params)

    def run(self, script: str) -> Any:
        """The value of an expression in the page."""
        answer = self.send("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(answer["exceptionDetails"]["exception"].get("description", "the script failed"))
        return answer["result"].get("value")

    def wait(self, condition: str) -> None:
        """Waits until an expression holds."""
        deadline = time.monotonic() + PATIENCE
        while not self.run(condition):
            if time.monotonic() > deadline:
                raise TimeoutError(condition)
            time.sleep(0.05)

    def texts(self, selector: str) -> list[str]:
        """What is written in some elements."""
        return self.run(f"[...document.querySelectorAll({json.dumps(selector)})].map((e) => e.textContent.trim())")

    def middle(self, selector: str, x: float = 0.5, y: float = 0.5) -> tuple[float, float]:
        """Where an element is in the window, after scrolling to it."""
        box = self.run(
            f"(() => {{ const e = document.querySelector({json.dumps(selector)});"
            " e.scrollIntoView({block: 'center', inline: 'nearest', behavior: 'instant'});"
            " const b = e.getBoundingClientRect(); return [b.left, b.top, b.width, b.height]; })()"
        )
        return box[0] + x * box[2], box[1] + y * box[3]

    def move(self, selector: str, x: float = 0.5, y: float = 0.5) -> None:
        """Moves the mouse over a part of an element."""
        at = self.middle(selector, x, y)
        self.send("Input.dispatchMouseEvent", type="mouseMoved", x=at[0], y=at[1])

    def click(self, selector: str) -> None:
        """Clicks on an element, as a person would."""
        x, y = self.middle(selector)
        for kind in ("mousePressed", "mouseReleased"):
            self.send("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def type(self, text: str) -> None:
        """Writes where the cursor is."""
        self.send("Input.insertText", text=text)

    def press(self, key: str) -> None:
        """Presses a key such as "ArrowRight"."""
        for kind in ("keyDown", "keyUp"):
            self.send("Input.dispatchKeyEvent", type=kind, key=key, code=key)

    def events(self, *methods: str) -> list[dict[str, Any]]:
        """What the browser told of this page."""
        return [
            e["params"] for e in self.browser.events if e.get("sessionId") == self.session and e["method"] in methods
        ]

    def complaints(self) -> list[str]:
        """Errors and warnings of scripts, of the page's policy, and of anything else."""
        found = [str(e) for e in self.events("Runtime.exceptionThrown")]
        found += [str(e) for e in self.events("Runtime.consoleAPICalled") if e["type"] in ("error", "warning")]
        return found + [e["entry"]["text"] for e in self.events("Log.entryAdded")]

    def requests(self) -> list[str]:
        """The addresses that the page asked for; images inside the page have none."""
        asked = [e["request"]["url"] for e in self.events("Network.requestWillBeSent")]
        return [address for address in asked if not address.startswith("data:")]

    def screenshot(self, path: Path, *, whole: bool = True) -> None:
        """A picture of the page."""
        data = self.send("Page.captureScreenshot", captureBeyondViewport=whole)["data"]
        path.write_bytes(base64.b64decode(data))

    def pdf(self) -> bytes:
        """The page as a printer gets it."""
        return base64.b64decode(self.send("Page.printToPDF", printBackground=False)["data"])

    def close(self) -> None:
        """Closes the page."""
        self.browser.send("Target.closeTarget", targetId=self.target)
