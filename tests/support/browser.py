"""The system's Chromium, driven by playwright, for pages that must work offline; what is missing skips the test."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

ARGUMENTS = (
    "--no-sandbox",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


@dataclass
class Visit:
    """An open page, and what it said and asked for since it was opened."""

    page: Any
    console_errors: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)


@contextmanager
def chromium() -> Iterator[Any]:
    """A headless browser; skips, naming it, what is not there."""
    api = pytest.importorskip(
        "playwright.sync_api", reason="playwright is not installed: pip install playwright"
    )
    executable = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if executable is None:
        pytest.skip("no chromium, chromium-browser or google-chrome on PATH")
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable, args=list(ARGUMENTS))
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def opened(browser: Any, path: Path, *, width: int = 1280, dark: bool = False) -> Iterator[Visit]:
    """A file in a context of its own: offline, with every request and every complaint recorded."""
    context = browser.new_context(
        viewport={"width": width, "height": 900}, offline=True, color_scheme="dark" if dark else "light"
    )
    page = context.new_page()
    visit = Visit(page=page)
    page.on(
        "console",
        lambda message: visit.console_errors.append(message.text) if message.type == "error" else None,
    )
    page.on("pageerror", lambda error: visit.console_errors.append(str(error)))
    page.on("request", lambda request: visit.requests.append(request.url))
    page.on("requestfailed", lambda request: visit.failed.append(request.url))
    try:
        page.goto(path.as_uri(), wait_until="load")
        yield visit
    finally:
        context.close()
