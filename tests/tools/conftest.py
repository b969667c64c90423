import pytest

from tests.tools.pages import CHROMIUM, PHONE


@pytest.fixture
def opened():
    """A page of a real browser on a phone. No script may fail in it."""
    from playwright.sync_api import sync_playwright  # here, as most tests do without it

    if CHROMIUM is None:
        pytest.skip("no browser here: apt-get install chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page, errors = browser.new_page(viewport=PHONE), []
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("console", lambda message: message.type == "error" and errors.append(message.text))
        yield page
        browser.close()
    assert errors == []
