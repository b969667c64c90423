"""The page in a real browser, against a server whose answers are known."""

import shutil
import threading
from contextlib import contextmanager

import pytest
from grpc import StatusCode
from playwright.sync_api import expect, sync_playwright

from serving.errors import ServingError, invalid
from serving.protection import Protection
from tests.serving.fake import Page

CHROMIUM = next(filter(None, map(shutil.which, ["chromium", "chromium-browser", "google-chrome"])), None)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no browser here: apt-get install chromium")

LIGHTEST_CONTRAST = 4.5  # of text, by WCAG 2 AA


@pytest.fixture(scope="module")
def browser():
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield chromium
        chromium.close()


@pytest.fixture
def api():
    server = Page()
    yield server
    for event in server.holds.values():
        event.set()
    server.stop()


@contextmanager
def opened(browser, api, query="", **options):
    """A page that has asked for the models, and that must come to its end without an error of its own."""
    context = browser.new_context(**options)
    page = context.new_page()
    page.set_default_timeout(15_000)
    errors = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("console", lambda message: message.type == "error" and errors.append(message.text))
    page.goto(api.url + query)
    expect(page.locator("#result")).to_have_attribute("aria-busy", "false")
    yield page
    context.close()
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


def call(page, function, *arguments):
    """The answer of a function of words.js."""
    return page.evaluate("async ([name, given]) => (await import('/words.js'))[name](...given)", [function, arguments])


WORDS = [
    ([], []),
    (["▁Zwei", "▁Hun", "de", "."], [["Zwei", [0]], ["Hunde.", [1, 2, 3]]]),
    (["▁A", ".", "</s>", "▁B", "</s>"], [["A.", [0, 1]], ["B", [3]]]),
    (["a", "b", "</s>", "c", "", ""], [["ab", [0, 1]], ["c", [3]]]),
    (["▁", "<0xF0>", "<0x9F>", "<0x98>", "<0x80>", "!", "▁x"], [["😀!", [0, 1, 2, 3, 4, 5]], ["x", [6]]]),
    (["▁a", "▁", "▁▁b", "▁"], [["a", [0]], ["b", [1, 2]]]),
    (["▁我", "喜欢", "猫", "。"], [["我", [0]], ["喜欢", [1]], ["猫。", [2, 3]]]),
    (["▁<0x41>", "<0x4", "1>"], [["<0x41><0x41>", [0, 1, 2]]]),
]
RUNS = [
    ("a  b\n", ["a", "b"], [["a", 0], ["  ", None], ["b", 1], ["\n", None]]),
    ("a b. C d", ["a", "b."], [["a", 0], [" ", None], ["b.", 1], [" C d", None]]),
    ("①at at", ["1at", "at"], [["①at ", None], ["at", 1]]),  # the model reads ① as 1
    ("我喜欢猫", ["我", "喜欢", "猫"], [["我", 0], ["喜欢", 1], ["猫", 2]]),
    ("a\u200bb", ["b"], [["a\u200b", None], ["b", 0]]),
]
NEW = [("a b c", "a b c", []), ("a x c", "a b c", ["x"]), ("x a b c y", "a b c", ["x", "y"])]
NEW += [("a c", "a b c", []), ("c a b", "a b c", ["c"]), ("a", "", ["a"])]


def test_pieces_become_words_that_are_found_in_the_text_and_the_least_is_new_in_an_alternative(page):
    for pieces, words in WORDS:
        assert [[word["text"], word["places"]] for word in call(page, "wordsOf", pieces)] == words
    for text, words, runs in RUNS:
        assert [[run["text"], run["word"]] for run in call(page, "runsOf", text, words)] == runs
    for text, other, new in NEW:
        runs = call(page, "differences", text, other)
        assert "".join(run["text"] for run in runs) == text
        assert [run["text"] for run in runs if run["isNew"]] == new


def test_a_word_is_as_likely_as_its_pieces_together_and_attends_as_they_do_on_average(page):
    explanation = call(
        page,
        "explanationOf",
        {
            "source_pieces": ["▁red", "▁do", "gs"],
            "pieces": ["▁Ro", "te", "▁Hun", "de", "n", "</s>"],
            "token_scores": [-0.5, -0.25, 0.0, -1.0, -2.0, -7.0],
            "alignment": [[0.5, 0.25, 0.25], [1, 0, 0], [0, 1, 0], [0.5, 0, 0.5], [0.25, 0.5, 0.25], [0, 0, 1]],
        },
    )
    assert explanation["source"] == ["red", "dogs"] and explanation["target"] == ["Rote", "Hunden"]
    assert explanation["probabilities"] == pytest.approx([0.4723665527, 0.0497870684])
    assert explanation["weights"] == [pytest.approx([0.75, 0.25]), pytest.approx([0.25, 0.75])]


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


def test_an_answer_that_comes_too_late_is_not_shown(page, api):
    api.holds["slow"] = threading.Event()
    with page.expect_request(lambda request: "slow" in (request.post_data or "")):
        page.get_by_role("textbox", name="Text").fill("slow")
    with page.expect_event("requestfailed", lambda request: "slow" in request.post_data) as aborted:
        write(page, "quick")
    assert "ERR_ABORTED" in aborted.value.failure
    api.holds["slow"].set()
    expect(page.locator("#target")).to_have_text("QUICK")
    assert api.texts("explain") == ["slow", "quick"]


def test_alternatives_are_listed_once_each_with_their_scores_and_what_is_new_in_them(page):
    write(page, "one two")
    rows = page.get_by_role("region", name="Alternatives").get_by_role("listitem")
    expect(rows).to_have_text(["ONE TWO−0.50", "ONE ELSE−0.75", "ONE TWO MORE−1.25"])
    expect(rows.locator("ins")).to_have_text(["ELSE", "MORE"])


def test_unlikely_words_are_shaded_and_their_probability_is_shown_on_demand(page):
    write(page, "a three")
    doubts = page.locator("#target .word").evaluate_all("x => x.map(y => Number(y.style.getPropertyValue('--doubt')))")
    assert doubts == pytest.approx([0.1, 0.55])  # 1 - 0.9, 1 - 0.9 * 0.5
    numbers = "x => getComputedStyle(x, '::after').content"
    assert word(page, "THREE").evaluate(numbers) == "none"
    page.get_by_role("checkbox", name="Numbers").check()
    assert '"45\xa0%"' in word(page, "THREE").evaluate(numbers)


def test_pointing_at_a_word_or_at_the_heat_map_shows_what_attends_to_what(page):
    write(page, "one two three")
    details, table = page.locator("#details"), page.get_by_role("grid", name="Attention")
    assert lit(page) == {}
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
    page.keyboard.press("Control+Enter")
    expect(word(page, "ONE")).to_be_focused()
    page.keyboard.press("ArrowRight")
    expect(word(page, "TWO")).to_be_focused()
    expect(page.get_by_role("option", selected=True)).to_have_text("TWO")
    assert lit(page) == {"one": 25, "two": 75}
    page.keyboard.press("End")
    expect(word(page, "THREE")).to_be_focused()
    page.keyboard.press("ArrowDown")  # to what it attends to most
    cells = page.locator("tbody").get_by_role("gridcell")
    expect(cells.nth(8)).to_be_focused()
    page.keyboard.press("Home")
    page.keyboard.press("ArrowUp")
    expect(cells.nth(3)).to_be_focused()
    expect(page.locator("#details")).to_have_text("“TWO” looks at “one” with 25 % of its attention")
    page.keyboard.press("ArrowUp")
    page.keyboard.press("ArrowUp")
    expect(word(page, "ONE")).to_be_focused()
    page.keyboard.press("Escape")
    expect(page.get_by_role("textbox", name="Text")).to_be_focused()
    assert lit(page) == {}


def test_tab_stops_once_in_the_words_and_once_in_the_table(page):
    write(page, "one two three")
    stops = []
    for _ in range(6):
        stops.append(page.evaluate("document.activeElement.id || document.activeElement.getAttribute('role')"))
        page.keyboard.press("Tab")
    assert stops == ["source", "keep", "copy", "option", "numbers", "gridcell"]
    word(page, "ONE").focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Tab")
    page.keyboard.press("Shift+Tab")
    expect(word(page, "TWO")).to_be_focused()  # where one was, and nowhere else in the list
    page.keyboard.press("Shift+Tab")
    expect(page.get_by_role("button", name="Copy")).to_be_focused()


def test_what_a_model_cannot_explain_or_only_in_part_is_still_translated(page, api):
    explained = {
        "source_pieces": ["▁one"],
        "pieces": ["▁ONE", "</s>"],
        "token_scores": [-0.1, 0],
        "alignment": [[1], [1]],
    }
    api.answers["one two."] = {"explain": explained}
    write(page, "one two.")
    expect(page.get_by_role("option")).to_have_text(["ONE"])
    api.lacks = {"explain", "alternatives"}
    write(page, "one two")
    write(page, "one two three")
    expect(page.locator("table")).to_be_hidden()
    expect(page.get_by_role("region", name="Alternatives")).to_be_hidden()
    assert api.texts("translate") == ["one two", "one two three"]
    assert api.texts("explain") == ["one two.", "one two"]  # it is not asked again
    expect(page.locator("#trouble")).to_be_hidden()


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


def test_a_busy_server_is_asked_again_and_one_that_refuses_is_not(page, api):
    page.clock.install()
    api.answers["one"] = ServingError(StatusCode.UNAVAILABLE, "The batch scheduling queue is full")
    page.get_by_role("textbox", name="Text").fill("one")
    expect(page.get_by_role("alert")).to_contain_text("cannot answer now: The batch scheduling queue is full")
    del api.answers["one"]
    page.clock.fast_forward(1_000)
    expect(page.locator("#target")).to_have_text("ONE")
    api.answers["two"] = invalid("Too many characters")
    page.get_by_role("textbox", name="Text").fill("two")
    expect(page.get_by_role("alert")).to_contain_text("refuses this text: Too many characters")
    page.clock.fast_forward(60_000)  # far longer than the pause before another try
    assert api.texts("explain").count("two") == 1
    write(page, "three")
    expect(page.locator("#trouble")).to_be_hidden()


def test_there_is_a_choice_where_there_are_several_models(browser, api):
    api.models[:] = ["en-de", "de/en"]
    with opened(browser, api) as page:
        write(page, "one")
        assert api.asked[-1][0] == "en-de"
        page.get_by_role("combobox", name="Model").select_option("de/en")
        page.wait_for_url("**/?model=de%2Fen")
        expect(page.locator("#target")).to_have_text("ONE")
    with opened(browser, api, "?model=de%2Fen") as page:
        expect(page.get_by_role("combobox", name="Model")).to_have_value("de/en")
    api.models[:] = ["only"]
    with opened(browser, api) as page:
        write(page, "one")
        expect(page.get_by_role("combobox")).to_be_hidden()


def test_text_is_shown_as_text_and_its_lines_and_spaces_are_kept(page, api):
    nasty = "<b>bold</b> &amp;\n\n  <img src=x onerror=alert(1)>"
    page.get_by_role("textbox", name="Text").fill(nasty)
    expect(page.locator("#target")).to_have_text(nasty.upper(), use_inner_text=True)
    assert page.locator("#target").evaluate("x => x.textContent") == nasty.upper()
    assert page.locator("main b, main img").count() == 0


def test_right_to_left_text_runs_from_right_to_left(page):
    write(page, "שלום לכם")
    for element in ("#source", "#target", "table"):
        assert page.locator(element).evaluate("x => getComputedStyle(x).direction") == "rtl"
    page.keyboard.press("Control+Enter")
    page.keyboard.press("ArrowLeft")
    expect(word(page, "לכם")).to_be_focused()
    first, second = (word(page, name).bounding_box()["x"] for name in ("שלום", "לכם"))
    assert second < first


def test_words_are_lit_exactly_behind_those_in_the_box(page):
    text = "one two\n\nthree " * 7
    write(page, text.strip())
    sizes = (
        "x => [x.clientWidth, x.clientHeight, x.scrollHeight, getComputedStyle(x).font, getComputedStyle(x).padding]"
    )
    box, behind = (page.locator(element).evaluate(sizes) for element in ("#source", "#source-words"))
    assert box == behind and box[1] == box[2]  # nothing to scroll


@pytest.mark.parametrize("width", [360, 800])
def test_nothing_is_wider_than_the_screen_but_the_table_that_scrolls(browser, api, width):
    with opened(browser, api, viewport={"width": width, "height": 640}) as page:
        write(page, "w" * 97 + " one two three four five six seven eight nine ten eleven")
        assert page.evaluate("document.documentElement.scrollWidth") == width
        assert page.locator(".scroll").evaluate("x => x.scrollWidth > x.clientWidth") == (width == 360)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_all_text_can_be_read_in_either_theme(browser, api, scheme):
    """The ratio of luminances by WCAG, of the colours as the browser mixes them."""
    with opened(browser, api, color_scheme=scheme) as page:
        write(page, "one two three four")
        page.get_by_role("checkbox", name="Numbers").check()
        page.locator("#target .word").first.evaluate("x => x.style.setProperty('--doubt', 1)")
        page.locator("td[role]").evaluate_all("x => x.forEach((y, n) => y.style.setProperty('--weight', n / 15))")
        page.wait_for_timeout(300)  # for the transitions
        ratios = page.evaluate(CONTRASTS, "h1, h2, .note, .word, td[role], th, .score, #details, footer p, button")
    assert len(ratios) > 30
    assert {text: ratio for text, ratio, _ in ratios if ratio < LIGHTEST_CONTRAST} == {}
    assert (ratios[0][2] < 0.5) == (scheme == "dark")


CONTRASTS = """selector => {
    const context = Object.assign(document.createElement("canvas"), {width: 1, height: 1}).getContext("2d");
    const paint = colors => {
        for (const color of colors) { context.fillStyle = color; context.fillRect(0, 0, 1, 1); }
        const linear = [...context.getImageData(0, 0, 1, 1).data].map(x => x / 255).map(
            x => x <= 0.04045 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4);
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2];
    };
    return [...document.querySelectorAll(selector)].filter(x => x.checkVisibility()).map(element => {
        const grounds = [];
        for (let x = element; x; x = x.parentElement) grounds.unshift(getComputedStyle(x).backgroundColor);
        const [ground, ink] = [paint(grounds), paint([...grounds, getComputedStyle(element).color])];
        const [dark, light] = [Math.min(ground, ink), Math.max(ground, ink)];
        return [element.textContent + " in " + element.tagName, (light + 0.05) / (dark + 0.05), ground];
    });
}"""


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


# Words to keep.


def test_the_browser_hides_what_the_client_hides(page):
    terms = {"apple": "Apfel", "apple tree": "Apfelbaum", "C++": "C++", "電話": "phone", "a|b": "c", "größe": "size"}
    texts = [
        "An apple tree, Apple, pineapple, C++ and 電話です, a|b, größe, größer",
        "see https://a.org/x_(y)?q=1, (http://b.c/d) or www.e.f, or write to a.b+ü@d-e.org.",
        "5 km, 3.5kg, 20 °C, 50% off, 1,000 €, $5.50, 15.50 EUR, CHF 9, aUSD 7, -3 m/s, 5 may, 12 dogs, ٣ km, 5 µm",
        "{name} has {0:.2f}, ${x}, {{ a b }}, %s of %(größe)d, %1$s, %5.2f%%, `ls -l` ⟦3⟧ ⟦12⟧ `open {open %",
        ". ".join(f"It is {n} km from {n} kg" for n in range(7)),
        "Gleis 3 am Bahnhof, 12 a Day, 5 s přáteli, 3 s „nimi“, 9am, 7\u00a0m away, 12 V, 5 m; (3 h) 7 min. 6 TV",
    ]
    for patterns in (True, False):
        hidden = page.evaluate(
            """async ([terms, patterns, texts]) => {
                const { Protection } = await import("/protection.js");
                const protection = new Protection(new Map(Object.entries(terms)), patterns);
                return texts.map((text) => protection.hide(text)).map((each) => [each.text, each.words]);
            }""",
            [terms, patterns, texts],
        )
        protection = Protection(terms, patterns)
        assert [tuple(row) for row in hidden] == [(h.text, list(h.words)) for h in map(protection.hide, texts)]


def test_terms_and_protected_words_are_in_translation_alternatives_and_attention_if_the_model_can(api, page):
    api.answers["one two⟦0⟧ ⟦1⟧"] = {
        "explain": {
            "source_pieces": ["▁one", "▁two", "⟦0⟧", "▁", "⟦1⟧"],
            "pieces": ["▁ONE", "▁", "⟦0⟧", "▁", "⟦1⟧", "</s>"],
            "token_scores": [-0.5] * 6,
            "alignment": [[0.0, 0.0, 0.5, 0.0, 0.5]] * 6,
        }
    }
    page.get_by_text("Words to keep").click()
    page.get_by_role("checkbox", name="URLs").check()
    page.get_by_role("textbox", name="Text").fill("7 km")  # whose explanation has no placeholder
    expect(page.locator("#message")).to_contain_text("This model has no placeholders, so it cannot keep words")
    page.get_by_role("checkbox", name="URLs").uncheck()
    expect(page.locator("#target")).to_have_text("7 KM")
    page.get_by_role("textbox", name="Terms").fill("two = Duo\n# no\nwrong")
    expect(page.locator("#terms-note")).to_have_text("Line 3 is left out: write apple = Apfel.")
    page.get_by_role("checkbox", name="URLs").check()
    page.get_by_role("textbox", name="Text").fill("one two 5km")
    expect(page.locator("#target")).to_have_text("ONE Duo 5km")
    expect(page.locator("#alternatives li .text").first).to_contain_text("Duo")
    word(page, "Duo").hover()
    assert lit(page) == {"two": 50, "5km": 50}
    assert api.texts("explain")[-1] == "one two⟦0⟧ ⟦1⟧"
