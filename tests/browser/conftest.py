"""A page in Debian's chromium for the tests of what people see, and the pictures it leaves behind."""

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from conftest import REPOSITORY


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Playwright is an extra, so the core-only job leaves out whatever drives a browser."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker("extras")


@pytest.fixture(scope="session")
def browser() -> Iterator:
    """One headless chromium for all tests of a process; WebGL is drawn in software."""
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        pytest.skip("needs playwright, which is not installed")
    executable = shutil.which("chromium")
    if executable is None:
        pytest.skip("needs chromium, which is not installed")
    arguments = ["--headless", "--no-sandbox", "--disable-gpu"]
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=executable, args=arguments)
        yield chromium
        chromium.close()


@pytest.fixture
def page(browser) -> Iterator:
    """A new page without network. A console error, an uncaught one or a request that is no file fails the test.

    ``page.problems`` lists what went wrong so far; a test that provokes an error on purpose clears it.
    """
    context = browser.new_context(viewport={"width": 1280, "height": 900}, offline=True, accept_downloads=True)
    sheet = context.new_page()
    sheet.set_default_timeout(60_000)  # machines that test are busy
    sheet.problems = []
    sheet.on("pageerror", lambda error: sheet.problems.append(f"uncaught: {error}"))
    sheet.on("console", lambda told: sheet.problems.append(told.text) if told.type == "error" else None)
    sheet.on("request", lambda sent: None if sent.url.startswith(_LOCAL) else sheet.problems.append(sent.url))
    yield sheet
    problems = list(sheet.problems)
    context.close()
    assert problems == []


_LOCAL = ("file:", "data:", "blob:", "about:")


@pytest.fixture
def screenshot(page) -> Callable[..., Path]:
    """``screenshot(name)`` keeps a picture of the page, in $HARDMAX_SCREENSHOTS or build/screenshots."""
    folder = Path(os.environ.get("HARDMAX_SCREENSHOTS") or REPOSITORY / "build" / "screenshots")
    folder.mkdir(parents=True, exist_ok=True)

    def take(name: str, full_page: bool = True) -> Path:
        path = folder / f"{name}.png"
        page.screenshot(path=path, full_page=full_page)
        return path

    return take
