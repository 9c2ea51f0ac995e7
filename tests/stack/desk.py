"""A reader of the operators' page: looks until something is there, clicks with a mouse, types on a keyboard."""

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.browser import Page

_PATIENCE = 20
_UNTIL = """
new Promise(found => {
  const look = () => {
    let value = null;
    try { value = (%s); } catch (error) { return; }
    if (!value) return;
    watch.disconnect();
    ['focusin', 'hashchange'].forEach(kind => removeEventListener(kind, look));
    found(value);
  };
  const watch = new MutationObserver(look);
  watch.observe(document, {subtree: true, childList: true, attributes: true, characterData: true});
  ['focusin', 'hashchange'].forEach(kind => addEventListener(kind, look));
  look();
})
"""
_PLACE = """
(() => {
  const within = [...document.querySelectorAll('dialog[open]')].pop() ?? document;
  const named = one => (one.ariaLabel ?? one.innerText).trim();
  const one = [...within.querySelectorAll('button, a, input')].find(one => named(one) === %s && one.checkVisibility());
  if (!one || one.disabled) return null;
  one.scrollIntoView({block: 'center'});
  const box = one.getBoundingClientRect();
  return {x: box.x + box.width / 2, y: box.y + box.height / 2};
})()
"""
_FRONT = "[...document.querySelectorAll('dialog[open]')].pop()"
_KEYS = {"Enter": 13, "Escape": 27, "ArrowDown": 40, "Tab": 9}
_EXPECTED = "Failed to load resource"
"""What Chromium notes of an answer like 401 or 404, which is no fault of the page."""


class Desk:
    """The page of one gateway in the one tab."""

    def __init__(self, page: Page, base: str) -> None:
        self.page = page
        self.base = base

    async def open(self, fragment: str = "#/") -> None:
        """Loads the page anew."""
        await self.page.visit("about:blank")
        await self.page.visit(f"{self.base}/ui/{fragment}")
        await self.until("document.querySelector('main h1')")

    async def go(self, fragment: str) -> str:
        """Follows a link within it; the heading that is there then."""
        await self.page.value(f"document.activeElement.blur(); location.hash = {json.dumps(fragment)}")
        return str(await self.until("document.activeElement.tagName === 'H1' && document.activeElement.innerText"))

    async def until(self, expression: str) -> Any:
        """The value of an expression, once it is true."""
        call = self.page.call("Runtime.evaluate", expression=_UNTIL % expression, awaitPromise=True, returnByValue=True)
        try:
            done = await asyncio.wait_for(call, _PATIENCE)
        except TimeoutError:
            raise AssertionError(f"{expression} is not so; the page shows:\n{await self.text()}") from None
        assert "exceptionDetails" not in done, done
        return done["result"].get("value")

    async def sees(self, text: str) -> None:
        """Looks until a text is there, in a dialog where one is open."""
        await self.until(f"({_FRONT} ?? document.body).innerText.includes({json.dumps(text)})")

    async def text(self) -> str:
        """What the page shows."""
        return str(await self.page.value("document.body.innerText"))

    async def click(self, name: str) -> None:
        """Clicks the button or link of that name, once it is there."""
        at = await self.until(_PLACE % json.dumps(name))
        for kind in ("mousePressed", "mouseReleased"):
            await self.page.call("Input.dispatchMouseEvent", type=kind, button="left", clickCount=1, **at)

    async def press(self, key: str, *, ctrl: bool = False) -> None:
        """A key of the keyboard."""
        text = {"Enter": "\r"}.get(key, key if len(key) == 1 and not ctrl else "")
        number = _KEYS.get(key, ord(key.upper()[0]))
        shared = {"key": key, "windowsVirtualKeyCode": number, "modifiers": 2 if ctrl else 0}
        await self.page.call("Input.dispatchKeyEvent", type="keyDown", text=text, **shared)
        await self.page.call("Input.dispatchKeyEvent", type="keyUp", **shared)

    async def write(self, text: str) -> None:
        """Types a text into what has the focus."""
        await self.page.call("Input.insertText", text=text)

    async def turn(self, *, hidden: bool) -> None:
        """Hides the tab, or shows it again."""
        await self.page.value(
            f"Object.defineProperty(document, 'hidden', {{value: {json.dumps(hidden)}, configurable: true}});"
            "document.dispatchEvent(new Event('visibilitychange'))"
        )

    @contextmanager
    def quiet(self) -> Iterator[None]:
        """Nothing in it makes Chromium complain: no error of the page, nothing that its policy forbids."""
        self.page.complaints.clear()
        self.page.requests.clear()
        yield
        assert [one for one in self.page.complaints if _EXPECTED not in one] == []
        asked = {url.split("/")[2] for url in self.page.requests if url.startswith("http")}
        assert asked <= {self.base.split("/")[2]}, "it asks nobody but its gateway"
