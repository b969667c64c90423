"""The page in a real browser, against a server whose answers are known."""

import shutil
from contextlib import contextmanager

import pytest
from playwright.sync_api import expect, sync_playwright

from serving.languages import Languages
from serving.protection import Protection
from tests.sentences import SENTENCES, TERMS
from tests.serving.fake import Page
from tests.serving.live import wait_for
from tests.test_protection import HIDDEN

CHROMIUM = next(filter(None, map(shutil.which, ["chromium", "chromium-browser", "google-chrome"])), None)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no browser here: apt-get install chromium")


@pytest.fixture(scope="module")
def browser():
    how = {"executable_path": CHROMIUM, "args": ["--no-sandbox"]}
    with sync_playwright() as playwright, playwright.chromium.launch(**how) as chromium:
        yield chromium


@pytest.fixture
def api():
    server = Page()
    yield server
    server.stop()


@contextmanager
def opened(browser, api, query="", **options):
    """A page that has asked for the models, and that must come to its end without an error of its own."""
    page = browser.new_context(**options).new_page()
    page.set_default_timeout(15_000)
    errors = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("console", lambda message: message.type == "error" and errors.append(message.text))
    page.goto(api.url + query)
    expect(page.locator("#result")).to_have_attribute("aria-busy", "false")
    yield page
    page.context.close()
    assert [error for error in errors if not error.startswith("Failed to load resource")] == []


@pytest.fixture
def page(browser, api):
    with opened(browser, api) as page:
        yield page


def write(page, text):
    """Types a text at once and waits for what came of it."""
    page.get_by_role("textbox", name="Text").fill(text)
    expect(page.locator("#target")).to_have_text(text.upper())


def word(page, name):
    return page.get_by_role("option", name=f"{name}, ")


def lit(page):
    """The words of the source that are lit, with their weights in percent."""
    words = page.locator("#source-words .lit").evaluate_all(
        "words => words.map(word => [word.textContent, Math.round(100 * word.style.getPropertyValue('--weight'))])"
    )
    return {word: weight for word, weight in words if weight}


def test_what_is_typed_is_translated_once_the_keys_are_still_and_an_empty_box_is_not(page, api):
    page.evaluate(
        """() => { for (const text of ["o", "on", "one"]) {
            document.getElementById("source").value = text;
            document.getElementById("source").dispatchEvent(new Event("input"));
        } }"""
    )
    expect(page.locator("#target")).to_have_text("ONE")
    assert api.texts("alternatives") == api.texts("explain") == ["one"]
    page.get_by_role("textbox", name="Text").press_sequentially("s", delay=0)
    expect(page.locator("#target")).to_have_text("ONES")
    for empty in ("", " \n"):
        write(page, empty)
        for section in ("Alternatives", "Attention"):
            expect(page.get_by_role("region", name=section)).to_be_hidden()
    page.wait_for_timeout(700)  # longer than the page waits for the keys
    assert api.texts("explain") == ["one", "ones"]


def test_a_text_that_is_typed_while_the_page_starts_is_translated_once(page, api):
    typing = "source.value = 'one'; source.dispatchEvent(new Event('input'))"
    page.add_init_script(f"addEventListener('DOMContentLoaded', () => {{ {typing} }})")
    page.reload()
    page.wait_for_timeout(700)  # longer than the page waits for the keys
    assert api.texts("explain") == ["one"] and page.locator("#target").text_content() == "ONE"


def test_pointing_at_a_word_or_at_the_heat_map_shows_what_attends_to_what(page):
    write(page, "one two three")
    details, table = page.locator("#details"), page.get_by_role("grid", name="Attention")
    word(page, "TWO").hover()
    assert lit(page) == {"one": 25, "two": 75}
    expect(details).to_have_text("“TWO” 45 % likely, looks at two 75 %, one 25 %")
    page.get_by_role("heading", name="Translator").hover()
    assert lit(page) == {}
    expect(table.get_by_role("columnheader")).to_have_text(["one", "two", "three"])
    expect(table.get_by_role("rowheader")).to_have_text(["ONE", "TWO", "THREE"])
    cells = table.locator("tbody").get_by_role("gridcell")
    expect(cells).to_have_text(["100", "0", "0", "25", "75", "0", "25", "0", "75"])
    cells.nth(3).hover()
    expect(details).to_have_text("“TWO” looks at “one” with 25 % of its attention")
    table.get_by_role("columnheader", name="one").hover()
    expect(details).to_have_text("“one” is looked at by ONE 100 %, TWO 25 %, THREE 25 %")
    shades = cells.evaluate_all("x => x.map(y => getComputedStyle(y).backgroundColor)")
    assert len(set(shades)) == 4  # 100, 75, 25 and 0


def test_the_keyboard_reaches_words_and_cells_and_goes_back(page):
    write(page, "one two three")
    cells = page.locator("tbody").get_by_role("gridcell")
    for key, focused in {
        "Control+Enter": word(page, "ONE"),
        "ArrowRight": word(page, "TWO"),
        "End": word(page, "THREE"),
        "ArrowDown": cells.nth(8),  # to what it attends to most
        "Home": cells.nth(6),
        "ArrowUp": cells.nth(3),
    }.items():
        page.keyboard.press(key)
        expect(focused).to_be_focused()
    expect(page.locator("#details")).to_have_text("“TWO” looks at “one” with 25 % of its attention")
    page.keyboard.press("ArrowUp")
    page.keyboard.press("ArrowUp")
    expect(page.get_by_role("option", selected=True)).to_have_text("ONE")
    page.keyboard.press("Escape")
    expect(page.get_by_role("textbox", name="Text")).to_be_focused()
    assert lit(page) == {}


def test_a_server_that_is_gone_is_reported_and_asked_again_until_it_is_back(page, api):
    write(page, "one")
    page.clock.install()
    api.stop()
    page.get_by_role("textbox", name="Text").fill("one two")
    expect(page.get_by_role("alert")).to_contain_text("The server does not answer: No connection.")
    expect(page.locator("#target")).to_have_text("ONE")
    api.start()
    page.clock.fast_forward(8_000)
    expect(page.locator("#target")).to_have_text("ONE TWO")
    expect(page.locator("#trouble")).to_be_hidden()


def test_text_is_shown_as_text_and_its_lines_and_spaces_are_kept(page):
    nasty = "<b>bold</b> &amp;\n\n  <img src=x onerror=alert(1)>"
    page.get_by_role("textbox", name="Text").fill(nasty)
    expect(page.locator("#target")).to_have_text(nasty.upper(), use_inner_text=True)
    assert page.locator("main b, main img").count() == 0


def test_the_page_asks_no_server_but_its_own_moves_nothing_unwelcome_and_copies(browser, api):
    allowed = {"reduced_motion": "reduce", "permissions": ["clipboard-read", "clipboard-write"]}
    with opened(browser, api, **allowed) as page:
        asked = []
        page.on("request", lambda request: asked.append(request.url))
        page.reload()
        write(page, "one two")
        assert len(asked) > 5 and [url for url in asked if not url.startswith(api.url)] == []
        policy = page.locator("meta[http-equiv=Content-Security-Policy]").get_attribute("content")
        assert "default-src 'none'" in policy and "unsafe" not in policy
        assert page.evaluate("document.getAnimations().length") == 0
        assert word(page, "ONE").evaluate("x => getComputedStyle(x).transitionDuration") == "0s"
        page.get_by_role("button", name="Copy").click()
        expect(page.get_by_role("button", name="Copied")).to_be_visible()
        assert page.evaluate("navigator.clipboard.readText()") == "ONE TWO"
        expect(page.get_by_role("status")).to_have_text("ONE TWO")  # what a screen reader is told


# Languages.


def test_a_model_of_many_languages_has_two_lists_and_a_swap_which_the_browser_remembers(browser):
    api = Page(Languages("en", "de", ("de", "en", "fr"), ("de", "en", "ja")))
    with opened(browser, api, viewport={"width": 360, "height": 800}) as page:
        source, target = (page.get_by_role("combobox", name=name) for name in ("From", "To"))
        swap = page.get_by_role("button", name="Swap languages")
        expect(source.locator("option")).to_have_text(["English", "French", "German"])
        expect(target.locator("option")).to_have_text(["German", "Japanese"])
        write(page, "one")
        target.select_option("Japanese")
        expect(swap).to_be_disabled()
        source.select_option("German")
        expect(target.locator("option")).to_have_text(["English", "Japanese"])
        target.select_option("English")
        expect(page.locator("#target")).to_have_attribute("lang", "en")
        expect(page.locator("#result")).to_have_attribute("aria-busy", "false")
        swap.click()
        expect(page.get_by_role("textbox", name="Text")).to_have_value("ONE")
        wait_for(lambda: api.directions[-1] == ("en", "de"))
        newer = "source.value = 'newer'; source.dispatchEvent(new Event('input'))"  # its translation is not there yet
        swap.evaluate(f"button => {{ {newer}; button.click(); }}")
        expect(page.get_by_role("textbox", name="Text")).to_have_value("newer")
        swap.click()
        wait_for(lambda: api.directions[-1] == ("en", "de"))
        target.select_option("ja")
        wait_for(lambda: api.directions[-1] == ("en", "ja"))
        page.reload()
        expect(target).to_have_value("ja")
        assert page.evaluate("document.documentElement.scrollWidth") <= 360
        page.evaluate("localStorage.setItem('languages of translator', JSON.stringify(['zz', 'de']))")
        page.reload()
        expect(target).to_have_value("de")
    api.stop()
    bilingual = Page(Languages("en", "de"))
    with opened(browser, bilingual) as page:
        expect(page.get_by_role("group", name="Languages")).to_be_hidden()
        page.route("**/languages?*", lambda route: route.fulfill(status=502))  # without the gateway
        page.reload()
        write(page, "one")
    bilingual.stop()


# Words to keep.


@pytest.fixture
def keeping(page):
    """A page with a term."""
    page.get_by_text("Words to keep").click()
    page.get_by_role("textbox", name="Terms").fill("two = Duo")
    return page


def test_a_model_with_placeholders_keeps_words_and_is_asked_once_whether_it_has_them(keeping, api):
    for text in ("one two", "two one two"):
        keeping.get_by_role("textbox", name="Text").fill(text)
        expect(keeping.locator("#target")).to_have_text(text.upper().replace("TWO", "Duo"))
    assert api.texts("explain") == ["⟦0⟧", "one two⟦0⟧", "two⟦0⟧ one two⟦1⟧"]


@pytest.mark.parametrize("lacks", [set(), {"explain"}], ids=str)
def test_a_model_without_placeholders_is_refused_whatever_it_writes_in_their_place(keeping, api, lacks):
    api.has_placeholders, api.lacks = False, lacks
    write(keeping, "one")
    keeping.get_by_role("textbox", name="Text").fill("one two")
    refused = "The server refuses this text: This model has no placeholders, so it cannot keep words: train one with"
    expect(keeping.get_by_role("alert")).to_contain_text(refused)
    expect(keeping.locator("#target")).to_have_text("ONE")
    assert api.texts("alternatives") == ["one"]
    write(keeping, "three")
    expect(keeping.locator("#trouble")).to_be_hidden()


def test_the_browser_hides_what_the_client_hides(page):
    terms = {"apple": "Apfel", "apple tree": "Apfelbaum", "C++": "C++", "電話": "phone", "a|b": "c", **TERMS}
    texts = [*HIDDEN, "An apple tree, Apple, pineapple, C++ and 電話です, a|b, größe, größer" + ", 3 kg" * 12]
    texts += [f"{sentence.text} 見https://a.org/bを{sentence.words}5 kmの" for sentence in SENTENCES.values()]
    for patterns in (True, False):
        hidden = page.evaluate(
            """async ([terms, patterns, texts]) => {
                const { Protection: Kept } = await import("/protection.js"), kept = new Kept(new Map(terms), patterns);
                return texts.map((text) => kept.hide(text)).map((each) => [each.text, each.words]);
            }""",
            [list(terms.items()), patterns, texts],
        )
        expected = map(Protection(terms, patterns).hide, texts)
        assert [tuple(row) for row in hidden] == [(each.text, list(each.words)) for each in expected]
