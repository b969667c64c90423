"""LibreTranslate's API with documents: the program, in front of servers whose model is a function."""

import contextlib
import json
import multiprocessing
import re
import subprocess
import sys
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlencode

import pytest

from keras_transformer.cli import document_api, gateway
from keras_transformer.cli.document_api import DocumentApi
from keras_transformer.tools.documents import apart
from serving import gateway as plain
from serving.client import Client
from serving.languages import Languages
from serving.libretranslate import LONGEST_GLOSSARY, LibreTranslate
from tests import tiny
from tests.serving.fake import serve
from tests.serving.live import HOST, accepts, ask, connect, free_port, process_of, running, wait_for

ROOT = Path(__file__).parents[2]
EN_DE = {"source": "en", "target": "de"}
MOST_WORDS = 50  # of a text, that the model reads
JSON = {"Content-Type": "application/json"}
ONE = Languages("en", "de")
MANY = Languages("en", "de", ("en", "de", "fr"), ("de", "en", "fr"))


class Swapping:
    """A model that writes the words in upper case and in reverse order, and says which comes from which.

    Args:
        has_placeholders: bool, whether a placeholder is one piece. It then comes in the place of the word before it.

    Attributes:
        asked: list of (signature, inputs).
    """

    def __init__(self, has_placeholders=True):
        self.asked, self.has_placeholders = [], has_placeholders

    def __call__(self, model, signature, inputs):
        inputs = {name: [value.decode() for value in values] for name, values in inputs.items()}
        self.asked.append((signature, inputs))
        rows = [self._translated(text.split()[:MOST_WORDS]) for text in inputs["text"]]
        if signature == "explain":
            return explained(rows)
        texts = ["".join(pieces).replace("▁", " ").strip(" ") for _, pieces, _ in rows]
        return {"translation": texts, "score": [0.5] * len(texts)}

    def _translated(self, words):
        """The pieces of the words and of their translation, and for each of the latter its place in the former."""
        sources, found = [], []
        for word in words:
            pieces = re.findall(r"⟦\d⟧|[^⟦]+", word) if self.has_placeholders else [word]
            sources += [piece if piece[0] == "⟦" and self.has_placeholders else f"▁{piece}" for piece in pieces]
            place, piece = len(sources) - 1, sources[-1].upper()
            found += [(piece, place)] if piece[0] == "▁" else [(piece, place), ("▁", place)]
        return sources, [piece for piece, _ in found[::-1]], [place for _, place in found[::-1]]


def explained(rows):
    """The outputs of `explain`, padded."""
    width = max(len(pieces) for row in rows for pieces in row) + 1
    outputs = {"source_pieces": [], "pieces": [], "token_scores": [[-0.5] * width] * len(rows), "alignment": []}
    for sources, pieces, places in rows:
        for name, row in (("source_pieces", sources), ("pieces", pieces)):
            outputs[name].append([*row, "</s>", *[""] * (width - 1 - len(row))])
        places = [*places, len(sources), *[width] * (width - 1 - len(places))]
        outputs["alignment"].append([[float(place == column) for column in range(width)] for place in places])
    return outputs


@contextlib.contextmanager
def program_before(model, languages=ONE, make=DocumentApi, **options):
    """The port of the program before a server of a model."""
    with serve("grpc", model, languages=languages) as where, Client(**where, **options) as client:
        with running(make(lambda: {"m": (languages, client)}).app(())) as port:
            yield port


@pytest.fixture(scope="module")
def port():
    with program_before(Swapping()) as found:
        yield found


def post(port, body, path="/translate"):
    status, _, reply = ask(port, "POST", path, json.dumps({**EN_DE, "format": "html", **body}).encode(), JSON)
    return status, reply


def upload(port, name, data, path="/translate_file", headers=(), **fields):
    """Status and reply of an upload, in the form that browsers and curl write."""
    parts = [f'name="{key}"\r\n\r\n{value}'.encode() for key, value in {**EN_DE, **fields}.items()]
    parts += [f'name="file"; filename="{name}"\r\nContent-Type: text/html\r\n\r\n'.encode() + data] if name else []
    body = b"".join(b"--x\r\nContent-Disposition: form-data; " + part + b"\r\n" for part in parts) + b"--x--\r\n"
    return ask(port, "POST", path, body, {"Content-Type": "multipart/form-data; boundary=x", **dict(headers)})[::2]


def test_tags_stay_around_their_words_and_all_other_markup_to_the_byte(port):
    pages = {  # HTML -> the same in reverse order and in upper case
        "<p>one <b>two</b></p>": "<p><b>TWO</b> ONE</p>",
        '<p>one <a href="?a=1&amp;b" ID=x>two three</a></p>': '<p><a href="?a=1&amp;b" ID=x>THREE TWO</a> ONE</p>',
        "  <!-- c --><h1\n>one</h1><br/>zwölf ": "  <!-- c --><h1\n>ONE</h1><br/>ZWÖLF ",
        " \n ": " \n ",
        "\0a b <b>c</b>": "<b>C</b> B \0A",
    }
    status, reply = post(port, {"q": [*pages], "source": "auto"})  # as Mastodon asks
    assert (status, reply["translatedText"]) == (200, [*pages.values()])
    assert {each["language"] for each in reply["detectedLanguage"]} == {"en"}
    body = urlencode({"q": "one <b>two</b>", "format": "html", **EN_DE}).encode()  # as Discourse asks
    assert ask(port, "POST", "/translate", body)[::2] == (200, {"translatedText": "<b>TWO</b> ONE"})
    assert post(port, {"q": "one <b>two</b>", "format": "text"})[1] == {"translatedText": "<B>TWO</B> ONE"}


def test_a_mistake_is_answered_in_one_line(port):
    no_terms = 'Invalid request: glossary parameter is not an object of terms, such as {"term": "translation"}'
    for change, message in (
        ({"alternatives": 2}, "Invalid request: alternatives parameter must be <= 0 for the format html"),
        ({"format": ["html"]}, "['html'] format is not supported"),
        ({"format": "\ud800"}, "? format is not supported"),
        ({"source": "\ud800"}, "Invalid request: source parameter is not text"),
        ({"glossary": {"a": "b" * LONGEST_GLOSSARY}}, "Invalid request: glossary parameter may have 20000 characters"),
        *(({"glossary": each}, no_terms) for each in (["a"], {"a": 1}, {"": "b"}, {"a": "\ud800"}, "[" * 100_000)),
    ):
        assert post(port, {"q": "<p>one</p>", **change}) == (400, {"error": message})


def test_terms_of_a_request_are_kept_in_text_and_in_html():
    with program_before(Swapping(), glossary={"three": "DREI", "one": "other"}) as port:
        asked = {"q": "see <i>one</i> three", "glossary": {"one": "Eins"}}
        assert post(port, asked) == (200, {"translatedText": "DREI <i>Eins</i> SEE"})
        assert post(port, {**asked, "q": "see one", "format": "text"})[1] == {"translatedText": "Eins SEE"}
        assert post(port, {**asked, "q": "one", "glossary": {}})[1] == {"translatedText": "other"}
        form = {**EN_DE, "q": "see one", "glossary": '{"one": "Eins"}'}
        assert ask(port, "POST", "/translate", urlencode(form).encode())[2] == {"translatedText": "Eins SEE"}
        _, reply = upload(port, "a.html", b"<p>see <i>one</i></p>", glossary='{"one": "Eins"}')
        assert urllib.request.urlopen(reply["translatedFileUrl"]).read() == b"<p><i>Eins</i> SEE</p>"
    with program_before(Swapping(has_placeholders=False)) as port:
        for format in ("text", "html"):
            status, reply = post(port, {**asked, "format": format})
            assert status == 400 and reply["error"].startswith("this model has no placeholders")


def test_the_languages_of_a_request_go_to_the_model():
    model = Swapping()
    with program_before(model, languages=MANY) as port:
        asked = {"q": "<p>one <b>two</b></p><p>three</p>", "source": "de", "target": "fr"}
        assert post(port, asked) == (200, {"translatedText": "<p><b>TWO</b> ONE</p><p>THREE</p>"})
        _, reply = upload(port, "a.html", b'<html lang="de">one</html>', source="de", target="fr")
        assert urllib.request.urlopen(reply["translatedFileUrl"]).read() == b'<html lang="fr">ONE</html>'
    given = {(*inputs["source_lang"], *inputs["target_lang"]) for _, inputs in model.asked}
    assert given == {("de", "fr")} and {signature for signature, _ in model.asked} == {"translate", "explain"}


def test_a_file_comes_up_and_goes_down_once(port):
    times, po = b"1\n00:00:01,000 --> 00:00:02,000\n", b'msgid "one two"\nmsgstr "%s"\n'
    for name, data, translated in (
        ("a.html", b"<p>one <b>two</b></p>", b"<p><b>TWO</b> ONE</p>"),
        ("b.c.SRT", times + b"one <i>two</i>\n", times + b"<i>TWO</i> ONE\n"),
        ("ä ö/c.po", po % b"", po % b"TWO ONE"),
    ):
        status, reply = upload(port, name, data, source="auto")
        assert status == 200 and [*reply] == ["translatedFileUrl"]
        url, new = reply["translatedFileUrl"], f"{Path(name).stem}_de{Path(name).suffix}"
        assert re.fullmatch(rf"http://{HOST}:{port}/download_file/[\w-]{{20,}}\.{new}", url)
        with urllib.request.urlopen(url) as response:
            assert response.read() == translated
            assert response.headers["Content-Disposition"] == f"attachment; filename*=UTF-8''{new}"
            assert response.headers["Content-Type"] == "application/octet-stream"
            assert response.headers["Cache-Control"] == "no-store"
        message = "Invalid filename: a file can be downloaded once, within 10 minutes"
        assert ask(port, "GET", url.partition(str(port))[2])[::2] == (404, {"error": message})


def test_behind_a_proxy_with_tls_the_address_of_a_file_is_secure_and_no_type_of_a_form_breaks_its_name(port):
    _, reply = upload(port, "a.txt", b"one", headers={"Host": "translate.example", "X-Forwarded-Proto": "https"})
    assert reply["translatedFileUrl"].startswith("https://translate.example/download_file/")
    for kind in ("Multipart/Form-Data ; boundary=x", "multipart/form-data; charset=unicode_escape; boundary=x"):
        status, reply = upload(port, "\\ud800.txt", b"one", headers={"Content-Type": kind})
        assert status == 200 and reply["translatedFileUrl"].endswith("_de.txt")


def test_a_file_that_cannot_be_translated_is_refused_in_one_line(port):
    for name, data, fields, status, message in (
        ("", b"", {"file": "text"}, 400, "Invalid request: missing file parameter"),
        ("a.html", b"", {}, 400, "Invalid request: empty file"),
        ("a.html", b"a", {"source": ""}, 400, "Invalid request: missing source parameter"),
        ("a.html.gz", b"a", {}, 400, "Invalid request: file format not supported, only .txt .html "),
        ("a.html", b"<p>\xff\xfe</p>", {}, 400, "the document is not UTF-8: "),
        ("a.xlf", b"<xliff>" + b"<a>" * 100_000, {}, 400, "the document is not well-formed XML"),
        ("a.html", b"<p>one</p>" * 2**20, {}, 413, "The body must not be longer than 8388608 bytes."),
        ("a.html", b"a", {f"f{number}": "" for number in range(101)}, 400, "Too many fields"),
    ):
        found, reply = upload(port, name, data, **fields)
        assert found == status and reply["error"].startswith(message) and "\n" not in reply["error"]


def test_a_file_that_nobody_fetches_is_dropped(port, monkeypatch):
    def found(*texts):
        urls = [upload(port, f"{text}.txt", text.encode())[1]["translatedFileUrl"] for text in texts]
        return [ask(port, "GET", url.partition(str(port))[2])[0] for url in urls]

    monkeypatch.setattr(document_api, "SECONDS_KEPT", -1)
    assert found("one") == [404]
    monkeypatch.setattr(document_api, "SECONDS_KEPT", 60)
    monkeypatch.setattr(document_api, "MOST_KEPT_BYTES", 7)
    assert found("one", "two", "six") == [404, 200, 200]


def test_the_work_of_a_client_that_has_gone_ends_within_a_second(port):
    body = json.dumps({**EN_DE, "format": "html", "q": "x<br>" * 50_000}).encode()
    with connect(port) as client:
        client.sendall(b"POST /translate HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n")
        client.sendall(f"Content-Length: {len(body)}\r\n\r\n".encode() + body)
        wait_for(multiprocessing.active_children)
    wait_for(lambda: not multiprocessing.active_children(), 1)


def test_hostile_and_broken_documents_are_answered_and_hold_up_nobody(port, monkeypatch):
    for name, seconds in {"SECONDS_OF_PAGES": 1, "SECONDS_PER_CHARACTER": 0, "SECONDS_OF_FILE": 1}.items():
        monkeypatch.setattr(apart, name, seconds)  # of a processor
    refused, waits = (400, {"error": apart.TOO_MUCH}), []
    with ThreadPoolExecutor(2) as pool:
        found = [pool.submit(post, port, {"q": "x<br>" * 50_000}), pool.submit(upload, port, "a.html", b"{{" * 50_000)]
        while not all(each.done() for each in found):
            start = time.monotonic()
            assert ask(port, "GET", "/health")[0] == 200
            waits.append(time.monotonic() - start)
            time.sleep(0.05)
    assert [each.result() for each in found] == [refused] * 2
    assert sorted(waits)[int(0.9 * len(waits))] < 0.5
    pages = ["<b>" * 1000 + "x", "<div>" * 5000 + "x", "</b>" * 1000 + "x", "<![x", "<!", "\0" + "7\0x", "&#xD800;x"]
    for page in [*pages, '<b title="\0' + '7\0">x</b> y', "<p " * 100, "<b>x " * 100 + "</b>" * 100]:
        status, reply = post(port, {"q": page})
        assert status == 200 or (status, reply) == refused
    assert post(port, {"q": "a" * 2**20}) == (413, {"error": "The body must not be longer than 1048576 bytes."})


def test_one_bad_page_stays_as_it_is_and_all_others_are_translated(port, monkeypatch):
    bad = "x " * apart.LONGEST_EXPLAINED + "<b>y</b> z"
    pages = ["<p>one <b>two</b></p>", bad, "three"]
    assert post(port, {"q": pages}) == (200, {"translatedText": ["<p><b>TWO</b> ONE</p>", bad, "THREE"]})
    monkeypatch.setattr(apart, "MOST_REFUSED", 1)
    refusal = {"error": "a paragraph with tags may have 20000 characters: divide it"}
    assert post(port, {"q": [bad, bad]}) == post(port, {"q": bad}) == (400, refusal)


def test_an_error_of_the_server_is_that_of_the_answer():
    def model(*asked):
        raise ValueError("broken")

    with program_before(model) as port:
        for text in ("one", "<b>one</b> two"):
            assert post(port, {"q": text})[0] >= 400
    assert multiprocessing.active_children() == []


def test_the_settings_say_which_files_are_translated_or_the_program_that_does_it_is_named(port):
    found = ask(port, "GET", "/frontend/settings")[2]
    assert found["filesTranslation"] and {".html", ".srt", ".po", ".docx", ".md"} <= {*found["supportedFilesFormat"]}
    named = "`python -m keras_transformer gateway` translates HTML and files"
    with program_before(Swapping(), make=LibreTranslate) as port:
        assert ask(port, "GET", "/frontend/settings")[2]["filesTranslation"] is False
        for status, reply in (post(port, {"q": "a"}), upload(port, "a.html", b"a")):
            assert status in (400, 403) and named in reply["error"]


def test_pages_of_other_sites_may_ask_as_the_flag_says(capsys):
    a, b, needed = "https://a.org", "https://b.org", ["--backend=http://a:9", "--source_lang=en", "--target_lang=de"]
    for flags, origin, allowed in (([], a, "*"), (["--cors", a, b], b, b), (["--cors", a], b, None)):
        asked = {"Origin": origin, "Access-Control-Request-Method": "POST"}
        with running(DocumentApi(lambda: {}).app(plain.parse_arguments([*needed, *flags]).cors)) as port:
            for method, path in (("GET", "/languages"), ("OPTIONS", "/translate")):
                assert ask(port, method, path, headers=asked)[1]["Access-Control-Allow-Origin"] == allowed
    for origin in ("a.org", "https://a.org/", "https://a.org/b", "https://A.org", "https://a.org:443"):
        with pytest.raises(SystemExit):  # no browser writes such an origin
            plain.parse_arguments([*needed, "--cors", origin])
        assert f"Received: {origin}" in capsys.readouterr().err


def test_what_is_missing_is_named_in_one_line(mistake, monkeypatch):
    for missing, said in {
        "serving": "serving/ of the project: start it in the directory of serving/",
        "starlette": f"the package starlette, which is not installed: {gateway.INSTALL}",
    }.items():
        with monkeypatch.context() as patched:
            for name in [name for name in sys.modules if name.partition(".")[0] in ("serving", missing)]:
                patched.delitem(sys.modules, name)
            patched.setitem(sys.modules, missing, None)
            assert mistake(gateway, "--backend", "grpc://localhost:8500") == f"error: `gateway` needs {said}"


@pytest.mark.slow
def test_a_real_export_translates_html_from_a_request_through_both_programs():
    port, asked = free_port(), {"q": ["<p>one <b>two</b> three</p>", "ten"], **EN_DE}
    program = [sys.executable, "-m", "keras_transformer", "gateway", "--model_name=t", f"--port={port}"]
    with process_of("--model_base_path", tiny.saved_model() / "exports", "--model_name=t") as server:
        program += ["--source_lang=en", "--target_lang=de", f"--backend=grpc://{HOST}:{server.grpc}"]
        with subprocess.Popen(program, cwd=ROOT) as process, contextlib.ExitStack() as at_the_end:
            at_the_end.callback(process.terminate)
            wait_for(lambda: accepts(port))
            page, word = post(port, asked)[1]["translatedText"]
            assert word == post(port, {**asked, "q": "ten", "format": "text"})[1]["translatedText"]
            plain_text = post(port, {**asked, "q": "one two three", "format": "text"})[1]["translatedText"]
            assert re.sub("<.*?>", "", page) == plain_text and page.startswith("<p>") and "</b>" in page
            status, reply = upload(port, "a.html", asked["q"][0].encode())
            assert urllib.request.urlopen(reply["translatedFileUrl"]).read().decode() == page
