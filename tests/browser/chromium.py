"""A headless Chromium, driven over the DevTools protocol."""

import asyncio
import base64
import itertools
import json
import shutil
import tempfile
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp

#: By the name that Debian, and others, give it.
NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")


def chromium():
    return next((found for name in NAMES if (found := shutil.which(name))), None)


class Tab:
    """One page of a browser. `errors` are exceptions of scripts, and what the Content-Security-Policy refused."""

    def __init__(self, socket):
        self._socket = socket
        self._numbers = itertools.count(1)
        self._answers = {}
        self.errors = []
        self.requests = []
        self._reader = asyncio.create_task(self._read())

    async def _read(self):
        async for message in self._socket:
            told = json.loads(message.data)
            if "id" in told:
                self._answers.pop(told["id"]).set_result(told)
            match told.get("method"):
                case "Runtime.exceptionThrown":
                    self.errors.append(json.dumps(told["params"]["exceptionDetails"]))
                case "Log.entryAdded" if told["params"]["entry"]["level"] == "error":
                    self.errors.append(told["params"]["entry"]["text"])
                case "Network.requestWillBeSent":
                    self.requests.append(told["params"]["request"]["url"])

    async def call(self, method, **parameters):
        number = next(self._numbers)
        self._answers[number] = answer = asyncio.get_running_loop().create_future()
        await self._socket.send_json({"id": number, "method": method, "params": parameters})
        async with asyncio.timeout(30):
            told = await answer
        assert "error" not in told, told
        return told["result"]

    async def open(self, url):
        await self.call("Page.navigate", url=url)
        await self.until("document.readyState === 'complete'")

    async def value(self, expression):
        told = await self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in told, told
        return told["result"].get("value")

    async def until(self, expression, limit=20.0):
        async with asyncio.timeout(limit):
            while not await self.value(expression):  # noqa: ASYNC110 (polls a browser)
                await asyncio.sleep(0.05)

    async def press(self, key, code=0, text=""):
        for kind in ("keyDown", "keyUp"):
            await self.call("Input.dispatchKeyEvent", type=kind, key=key, windowsVirtualKeyCode=code, text=text)

    async def look(self, *, width=1400, height=900, dark=False, scripts=True):
        """Sets the window, the colour scheme that the reader prefers, and whether scripts run."""
        await self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        await self.call("Emulation.setEmulatedMedia", features=[scheme])
        await self.call("Emulation.setScriptExecutionDisabled", value=not scripts)

    async def screenshot(self, path):
        shot = await self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True)
        await asyncio.to_thread(Path(path).write_bytes, base64.b64decode(shot["data"]))

    async def close(self):
        self._reader.cancel()
        await asyncio.wait({self._reader})


@asynccontextmanager
async def browser():
    """A browser with one tab, in a profile of its own."""
    with tempfile.TemporaryDirectory(prefix="forebay-chromium-", ignore_cleanup_errors=True) as profile:
        process = await asyncio.create_subprocess_exec(
            chromium(),
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--hide-scrollbars",
            "--no-first-run",
            "--disable-background-networking",
            "--remote-debugging-port=0",
            f"--user-data-dir={profile}",
            "about:blank",
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )
        try:
            told = Path(profile) / "DevToolsActivePort"
            async with asyncio.timeout(60):
                while not told.exists() or not told.read_text().strip():  # noqa: ASYNC110 (polls a process)
                    await asyncio.sleep(0.1)
            port = told.read_text().split()[0]
            async with aiohttp.ClientSession() as session:
                async with session.get(f"http://127.0.0.1:{port}/json/list") as answer:
                    target = next(each for each in await answer.json() if each["type"] == "page")
                async with session.ws_connect(target["webSocketDebuggerUrl"], max_msg_size=0) as socket:
                    tab = Tab(socket)
                    for domain in ("Page", "Runtime", "Log", "Network"):
                        await tab.call(f"{domain}.enable")
                    try:
                        yield tab
                    finally:
                        await tab.close()
        finally:
            process.terminate()
            await process.wait()
