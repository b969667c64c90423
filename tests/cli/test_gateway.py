"""LibreTranslate's API with documents, and DeepL's: the program, before servers whose model is a function."""

import contextlib
import json
import multiprocessing
import re
import sys
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest.mock import Mock
from urllib.parse import urlencode

import deepl
import pytest

from keras_transformer.cli import document_api, gateway
from keras_transformer.cli.document_api import DocumentApi
from keras_transformer.tools.documents import apart
from serving import gateway as plain
from serving.client import Client
from serving.deepl import app_of
from serving.keys import Keys
from serving.languages import Languages
from serving.libretranslate import LONGEST_GLOSSARY, LibreTranslate
from tests import tiny
from tests.serving.fake import serve
from tests.serving.live import HOST, ask, both, connect, running, wait_for
from tests.serving.test_libretranslate import gateway_before

EN_DE = {"source": "en", "target": "de"}
MOST_WORDS = 50  # of a text, that the model reads
JSON = {"Content-Type": "application/json"}
ONE = Languages("en", "de")
MANY = Languages("en", "de", ("en", "de", "fr"), ("de", "en", "fr"))


class Swapping:
    """A model that writes the words in upper case and in reverse order, and says which comes from which.

    Args:
        has_placeholders: bool, whether a placeholder is one piece. It then comes in the place of the word before it.
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
def program_before(model, languages=ONE, make=DocumentApi, keys=None, **options):
    """The port of the program before a server of a model."""
    with serve("grpc", model, languages=languages) as where, Client(**where, **options) as client:
        with running(app_of(make(lambda: {"m": (languages, client)}, keys=keys), ())) as port:
            yield port


@pytest.fixture(scope="module")
def port():
    with program_before(Swapping()) as found:
        yield found


def post(port, body):
    status, _, reply = ask(port, "POST", "/translate", json.dumps({**EN_DE, "format": "html", **body}).encode(), JSON)
    return status, reply


def upload(port, name, data, headers=(), **fields):
    """Status and reply of an upload, in the form that browsers and curl write."""
    parts = [f'name="{key}"\r\n\r\n{value}'.encode() for key, value in {**EN_DE, **fields}.items()]
    parts += [f'name="file"; filename="{name}"\r\nContent-Type: text/html\r\n\r\n'.encode() + data] if name else []
    body = b"".join(b"--x\r\nContent-Disposition: form-data; " + part + b"\r\n" for part in parts) + b"--x--\r\n"
    kind = {"Content-Type": "multipart/form-data; boundary=x", **dict(headers)}
    return ask(port, "POST", "/translate_file", body, kind)[::2]


def test_tags_stay_around_their_words_and_all_other_markup_to_the_byte(port):
    pages = {  # HTML -> the same in reverse order and in upper case
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
    with program_before(model := Swapping(), languages=MANY) as port:
        asked = {"q": "<p>one <b>two</b></p><p>three</p>", "source": "de", "target": "fr"}
        assert post(port, asked) == (200, {"translatedText": "<p><b>TWO</b> ONE</p><p>THREE</p>"})
        _, reply = upload(port, "a.html", b'<html lang="de">one</html>', source="de", target="fr")
        assert urllib.request.urlopen(reply["translatedFileUrl"]).read() == b'<html lang="fr">ONE</html>'
        french = '"a" = "Le chat dort sous la table, et le chien regarde.";'.encode("utf-16")
        upload(port, "a.strings", french, source="auto", target="de")
    given = {(signature, *inputs["source_lang"], *inputs["target_lang"]) for signature, inputs in model.asked}
    assert given == {("translate", "de", "fr"), ("explain", "de", "fr"), ("translate", "fr", "de")}


def test_a_file_comes_up_and_goes_down_once_with_tls_behind_a_proxy_with_tls(port):
    times, po = b"1\n00:00:01,000 --> 00:00:02,000\n", b'msgid "one two"\nmsgstr "%s"\n'
    for name, data, translated in (
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
    _, reply = upload(port, "a.txt", b"one", headers={"Host": "translate.example", "X-Forwarded-Proto": "https"})
    assert reply["translatedFileUrl"].startswith("https://translate.example/download_file/")
    kind = {"Content-Type": "Multipart/Form-Data ; charset=unicode_escape; boundary=x"}
    status, reply = upload(port, "\\ud800.txt", b"one", headers=kind)
    assert status == 200 and reply["translatedFileUrl"].endswith("_de.txt")


def test_a_file_that_cannot_be_translated_is_refused_in_one_line(port):
    for name, data, fields, status, message in (
        ("", b"", {"file": "text"}, 400, "Invalid request: missing file parameter"),
        ("a.html", b"", {}, 400, "Invalid request: empty file"),
        ("a.html", b"a", {"source": ""}, 400, "Invalid request: missing source parameter"),
        ("a.html.gz", b"a", {}, 400, "Invalid request: file format not supported, only .txt .html "),
        ("a.html", b"<p>\xff\xfe</p>", {}, 400, "the document is not UTF-8: "),
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
    assert [each.result() for each in found] == [refused] * 2 and sorted(waits)[int(0.9 * len(waits))] < 0.5
    for page in ("<b>" * 1000 + "x", "<![x", '<b title="\0' + '7\0">x</b> y', "<b>x " * 100 + "</b>" * 100):
        status, reply = post(port, {"q": page})
        assert status == 200 or (status, reply) == refused
    assert post(port, {"q": "a" * 2**20}) == (413, {"error": "The body must not be longer than 1048576 bytes."})


def test_one_bad_page_stays_as_it_is_and_an_error_of_the_server_is_that_of_the_answer(port, monkeypatch):
    bad = "x " * apart.LONGEST_EXPLAINED + "<b>y</b> z"
    pages = ["<p>one <b>two</b></p>", bad, "three"]
    assert post(port, {"q": pages}) == (200, {"translatedText": ["<p><b>TWO</b> ONE</p>", bad, "THREE"]})
    monkeypatch.setattr(apart, "MOST_REFUSED", 1)
    refusal = {"error": "a paragraph with tags may have 20000 characters: divide it"}
    assert post(port, {"q": [bad, bad]}) == post(port, {"q": bad}) == (400, refusal)
    with program_before(Mock(side_effect=ValueError)) as broken:
        assert post(broken, {"q": "<b>one</b> two"})[0] >= 400
    assert multiprocessing.active_children() == []


def test_the_settings_say_which_files_are_translated_or_the_program_that_does_it_is_named(port):
    found = ask(port, "GET", "/frontend/settings")[2]
    assert found["filesTranslation"] and {".html", ".srt", ".po", ".docx", ".md"} <= {*found["supportedFilesFormat"]}
    named = "`python -m keras_transformer gateway` translates HTML and files"
    with program_before(Swapping(), make=LibreTranslate) as port:
        assert ask(port, "GET", "/frontend/settings")[2]["filesTranslation"] is False
        for status, reply in (post(port, {"q": "a"}), upload(port, "a.html", b"a")):
            assert status in (400, 403) and named in reply["error"]
        with pytest.raises(deepl.DeepLException, match="keras_transformer gateway"):
            client_of(port).translate_text("<b>a</b>", tag_handling="html", source_lang="EN", target_lang="DE")


def test_pages_of_other_sites_may_ask_as_the_flag_says(capsys):
    a, b, needed = "https://a.org", "https://b.org", ["--backend=http://a:9", "--source_lang=en", "--target_lang=de"]
    for flags, origin, allowed in (([], a, "*"), (["--cors", a, b], b, b), (["--cors", a], b, None)):
        asked = {"Origin": origin, "Access-Control-Request-Method": "POST"}
        with running(DocumentApi(lambda: {}).app(plain.parse_arguments([*needed, *flags]).cors)) as port:
            for method, path in (("GET", "/languages"), ("OPTIONS", "/translate")):
                assert ask(port, method, path, headers=asked)[1]["Access-Control-Allow-Origin"] == allowed
    for origin in ("a.org", "https://a.org/", "https://A.org", "https://a.org:443"):
        pytest.raises(SystemExit, plain.parse_arguments, [*needed, "--cors", origin])  # none that a browser writes
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
def test_a_real_export_translates_html_from_a_request_and_a_file():
    asked, flags = {"q": ["<p>one <b>two</b> three</p>", "ten"]}, ("--source_lang=en", "--target_lang=de")
    with both({"t": tiny.saved_model() / "exports"}) as server:
        with gateway_before(server.address, "--model_name=t", *flags, api=DocumentApi) as port:
            page, word = post(port, asked)[1]["translatedText"]
            assert word == post(port, {"q": "ten", "format": "text"})[1]["translatedText"]
            plain_text = post(port, {"q": "one two three", "format": "text"})[1]["translatedText"]
            assert re.sub("<.*?>", "", page) == plain_text and page.startswith("<p>") and "</b>" in page
            _, reply = upload(port, "a.html", asked["q"][0].encode())
            assert urllib.request.urlopen(reply["translatedFileUrl"]).read().decode() == page


# DeepL's API.


def client_of(port, key="any"):
    client = deepl.DeepLClient(key, server_url=f"http://{HOST}:{port}")
    deepl.http_client.max_network_retries = 0
    return client


def test_deepls_own_client_and_a_form_of_older_plug_ins_translate_a_text_and_several(port):
    client = client_of(port)
    found = client.translate_text("one two", target_lang="DE", source_lang="EN")
    assert (found.text, found.detected_source_lang, found.billed_characters) == ("TWO ONE", "EN", 7)
    texts = ["", *(f"text {number}" for number in range(150))]
    how = {"source_lang": "en", "target_lang": "de", "split_sentences": "0", "context": "numbers"}
    many = client.translate_text(texts, **how)
    assert [each.text for each in many] == ["", *(f"{number} TEXT" for number in range(150))]
    fields = [*(("text", text) for text in ("one two", "", "a\nb")), ("target_lang", "DE"), ("source_lang", "EN")]
    status, _, reply = ask(port, "POST", "/v2/translate?auth_key=k", urlencode(fields).encode())
    assert (status, [each["text"] for each in reply["translations"]]) == (200, ["TWO ONE", "", "B A"])
    assert [*reply["translations"][0]] == ["detected_source_language", "text"]


def test_deepls_tags_stay_around_their_words_and_ignored_ones_keep_their_content(port):
    client, how = client_of(port), {"source_lang": "EN", "target_lang": "DE"}
    assert client.translate_text('one <a id="7">two</a>', tag_handling="xml", **how).text == '<a id="7">TWO</a> ONE'
    kept = client.translate_text('one <x id="7">two</x> three', tag_handling="xml", ignore_tags=["x", "y"], **how).text
    assert kept.count('<x id="7">two</x>') == 1 and "translate=" not in kept and {"ONE", "THREE"} < {*kept.split()}
    assert client.translate_text("a <b>c</b>", **how).text == "<B>C</B> A"  # without tag_handling, tags are text


def test_deepls_languages_are_those_of_the_models_and_are_detected_text_by_text():
    with program_before(Swapping(), MANY) as port:
        client = client_of(port)
        languages = [(each.code, each.name) for each in client.get_source_languages()]
        assert languages == [("DE", "German"), ("EN", "English"), ("FR", "French")]
        assert [each.supports_formality for each in client.get_target_languages()] == [False] * 3
        texts = ["The house of my parents is old.", "Das Haus meiner Eltern ist alt.", "La maison de mes parents"]
        found = client.translate_text(texts, target_lang="EN-US")
        assert [each.detected_source_lang for each in found] == ["EN", "DE", "FR"]
        assert found[0].text == texts[0]  # it is in English already
        assert found[2].text == "PARENTS MES DE MAISON LA"


def test_a_mistake_has_a_message_as_deepls_own(port):
    no_tags = "Value for 'ignore_tags' not supported: it must be names of"
    for change, message in (
        ({"text": None}, "Parameter 'text' not specified."),
        ({"text": [7]}, "Value for 'text' not supported: it must be a list of texts"),
        ({"target_lang": None}, "Parameter 'target_lang' not specified."),
        ({"target_lang": "XX"}, "XX is not supported"),
        ({"source_lang": 7}, "Invalid request: source parameter is not text"),
        ({"glossary_id": "g"}, "Value for 'glossary_id' not supported: this server has none; leave it out"),
        ({"formality": "less"}, "'formality' is not supported for given 'target_lang'."),
        ({"tag_handling": "json"}, "Value for 'tag_handling' not supported: use html or xml"),
        *(({"tag_handling": "xml", "ignore_tags": names}, no_tags) for names in (7, ["<"])),
    ):
        body = {"text": ["one"], "source_lang": "EN", "target_lang": "DE", **change}
        status, _, reply = ask(port, "POST", "/v2/translate", json.dumps(body).encode(), JSON)
        assert status == 400 and reply["message"].startswith(message) and [*reply] == ["message"]


def test_a_key_stands_in_the_header_a_wrong_one_is_refused_and_usage_counts_characters():
    with program_before(Swapping(), keys=Keys({"right": 3})) as port:
        how = {"source_lang": "EN", "target_lang": "DE"}
        assert client_of(port, "right").translate_text("one two", **how).text == "TWO ONE"
        with pytest.raises(deepl.AuthorizationException, match="Invalid API key"):
            client_of(port, "wrong").translate_text("one", **how)
        fields = {"auth_key": "right", "text": "one", "target_lang": "DE", "source_lang": "EN"}
        assert ask(port, "POST", "/v2/translate", urlencode(fields).encode())[0] == 200
        usage = client_of(port, "right").get_usage()
        assert usage.character.count == len("one twoone") and not usage.any_limit_reached
        with pytest.raises(deepl.TooManyRequestsException, match="3 per 1 minute"):
            client_of(port, "right").get_usage()
