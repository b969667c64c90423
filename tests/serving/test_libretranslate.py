"""LibreTranslate's API, of the local server and of the gateway before it. The expected bodies are LibreTranslate's."""

import contextlib
import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from urllib.parse import urlencode

import pytest

from serving import gateway, http_server
from serving.client import Translation
from serving.keys import MISSING, read_keys
from serving.languages import Languages, detect, written
from serving.libretranslate import DOCUMENTS, THREADS, LibreTranslate
from serving.observing import Observed
from tests.serving import toy
from tests.serving.live import DEADLINE_SECONDS, HOST, ask, both, connect, running, wait_for

EN_DE = {"source": "en", "target": "de"}
JSON = {"Content-Type": "application/json"}
FORM = {"Content-Type": "application/x-www-form-urlencoded"}
MULTIPART = {"Content-Type": "multipart/form-data; boundary=x"}


@contextlib.contextmanager
def gateway_before(address, *flags, api=LibreTranslate):
    """The port of a gateway to a server of gRPC."""
    models = gateway.connected(gateway.parse_arguments(["--backend", f"grpc://{address}", *flags]))
    with running(api(lambda: models).app(())) as port:
        yield port
    for _, client in models.values():
        client.close()


@pytest.fixture(scope="module")
def ports(tmp_path_factory):
    """Kind of server -> port."""
    path = tmp_path_factory.mktemp("models")
    for name, source, target in (("forth", "en", "de"), ("back", "de", "en"), ("other", "fr", "de")):
        manifest = {"run": {"source_lang": source, "target_lang": target}}
        (toy.write(path / name, 3) / "export.json").write_text(json.dumps(manifest))
    toy.write(path / "unnamed", 3)
    names = {name: path / name for name in ("forth", "back", "other", "unnamed")}
    flags = ("--model_name=forth", "--model_base_path", str(path / "forth"))
    with both(names) as server, gateway_before(server.address, *flags) as port:
        yield {"server": server.port, "gateway": port}


@pytest.fixture(params=["server", "gateway"])
def port(ports, request):
    return ports[request.param]


def post(port, path, body, headers=JSON):
    body = json.dumps(body).encode() if headers is JSON else urlencode(body).encode()
    status, _, reply = ask(port, "POST", path, body, headers)
    return status, reply


def upper(text):
    return toy.translation(text, 3).decode()


def shouted(texts):
    return [Translation(text.upper(), 0.0) for text in texts]


def app_before(languages, translate=shouted, **options):
    """The app before a client whose translations a function makes."""
    return LibreTranslate(lambda: {"m": (languages, SimpleNamespace(translate=translate))}, **options).app(())


def test_a_text_gives_a_text_a_list_a_list_auto_its_language_and_one_in_the_target_language_comes_back(port):
    assert post(port, "/translate", {"q": "a", **EN_DE}) == (200, {"translatedText": upper("a")})
    texts = [f"text {number}" * (number % 7) for number in range(201)]
    status, reply = post(port, "/translate", {"q": texts, **EN_DE, "format": "text", "api_key": ""})
    assert (status, reply) == (200, {"translatedText": [upper(text) for text in texts]})
    german, english = "Der Hund schläft unter dem Tisch, und die Katze.", "The dog sleeps under the table, and the cat."
    asked = {"q": english, "source": "Auto", "target": "de"}
    reply = post(port, "/translate", asked)[1]
    assert reply["translatedText"] == upper(english) and reply["detectedLanguage"]["language"] == "en"
    assert post(port, "/translate", {**asked, "q": [english]})[1]["detectedLanguage"] == [reply["detectedLanguage"]]
    for q, source, target in (("a", "en", "en"), ("a", "de", "de-AT"), ("5 kilometers", "auto", "en")):
        assert post(port, "/translate", {"q": q, "source": source, "target": target})[1]["translatedText"] == q
    (found,) = post(port, "/detect", {"q": german})[1]
    assert found["language"] == "de" and found["confidence"] > 90


def test_a_language_that_is_not_identified_is_as_likely_as_all_others_together():
    assert detect("The dog sleeps under the table.", ["xx", "en"])[0][0] == "en"
    for text in ("Der Hund schläft unter dem Tisch.", "5 km"):
        found = detect(text, ["xx", "en"])
        assert found[0][0] == "xx" and sum(share for _, share in found) == pytest.approx(1)


def test_languages_are_written_as_libretranslate_does_and_found_by_any_name():
    for own, listed, asked in (
        (("en", "pt_BR"), ["en", "pt-BR"], [("en-US", "pt-BR"), ("eng", "pb"), ("EN", "pt"), ("en-GB", "pt_PT")]),
        (("en", "zh"), ["en", "zh-Hans"], [("en", "zh"), ("en", "zh-Hans"), ("en", "zh-CN"), ("en", "zho_Hans")]),
        (("eng_Latn", "zho_Hant"), ["en", "zh-Hant"], [("en", "zt"), ("eng", "zh-TW"), ("en", "zh-Hant")]),
        (("nob_Latn", "deu_Latn"), ["nb", "de"], [("no", "de-DE"), ("nb-NO", "deu")]),
    ):
        with running(app_before(Languages(*map(written, own)))) as port:
            assert [each["code"] for each in ask(port, "GET", "/languages")[2]] == listed
            for source, target in asked:
                reply = post(port, "/translate", {"q": "a", "source": source, "target": target})
                assert reply == (200, {"translatedText": "A"})
            assert post(port, "/translate", {"q": "a", "source": "x" * 10**5, "target": listed[1]})[0] == 400


def test_a_form_is_read_in_each_way(port):
    asked = {"q": "one\r\ntwö + 5 % & a=b", **EN_DE}
    expected = (200, {"translatedText": upper("one\ntwö + 5 % & a=b")})
    assert post(port, "/translate", asked, FORM) == expected
    assert post(port, f"/translate?{urlencode(asked)}", {}, FORM) == expected
    parts = "".join(f'--x\r\nContent-Disposition: form-data; name="{k}"\r\n\r\n{v}\r\n' for k, v in asked.items())
    assert ask(port, "POST", "/translate", f"{parts}--x--\r\n".encode(), MULTIPART)[::2] == expected


def test_alternatives_are_other_translations_best_first(port):
    asked = {"q": "a", **EN_DE, "alternatives": 1}
    assert post(port, "/translate", asked)[1] == {"translatedText": upper("a"), "alternatives": [upper("a") + "!"]}
    reply = post(port, "/translate", {**asked, "q": ["a", "b"], "alternatives": 9})[1]
    assert reply["alternatives"] == [[upper(text) + "!", upper(text) + "?"] for text in "ab"]
    assert "alternatives" not in post(port, "/translate", {**asked, "alternatives": -1})[1]


def test_mistakes_and_bodies_that_cannot_be_read_are_answered_in_one_line(port):
    for change, message in (
        ({"q": None}, "Invalid request: missing q parameter"),
        ({"target": None}, "Invalid request: missing target parameter"),
        ({"source": "zz"}, "zz is not supported"),
        ({"target": "auto"}, "auto is not supported"),
        ({"format": "html"}, f"html format is not supported: {DOCUMENTS}"),
        ({"alternatives": "x"}, "Invalid request: alternatives parameter is not a number"),
        ({"q": ["a", None]}, "Invalid request: q parameter is not text"),
        ({"q": "\ud800"}, "Invalid request: q parameter is not text"),
    ):
        assert post(port, "/translate", {"q": "a", **EN_DE, **change}) == (400, {"error": message})
    for body in (b"", b"{", b"[1]", b"[" * 100_000, b"\xff"):
        assert ask(port, "POST", "/translate", body, JSON)[::2] == (400, {"error": "Invalid JSON format"})
    many = "&".join(f"a{number}=b" for number in range(101)).encode()
    assert ask(port, "POST", "/translate", many, FORM)[0] == 400
    status, _, reply = ask(port, "POST", "/detect", b"--x\r\n?", MULTIPART)
    assert status == 400 and reply["error"]
    too_long = (413, {"error": "The body must not be longer than 1048576 bytes."})
    assert post(port, "/translate", {"q": "a" * 2**20, **EN_DE}) == too_long
    status, reply = post(port, "/translate", {"q": "raise", **EN_DE})
    assert status >= 400 and "a text" in reply["error"], "an error of the model"


def test_bodies_that_take_long_and_connections_that_say_nothing_hold_up_nobody(port, monkeypatch):
    lists, texts = b'{"q":[' + b"[]," * 3 * 10**5 + b"1]}", b'{"q":["' + b'","' * 10**5 + b'"]}'
    begun = time.monotonic()
    for body, kind in [(b"q=" + b"%" * 10**6, FORM), (lists, JSON), (texts, JSON)] * 3:
        assert ask(port, "POST", "/translate", body, kind)[0] == 400
    assert time.monotonic() - begun < 3
    monkeypatch.setattr(http_server, "MOST_CONNECTIONS", 20)
    unfinished = b"POST /translate HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n"
    for head in (b"", b"GET /health HTTP/1.1\r\nX: ", unfinished):
        with contextlib.ExitStack() as open_ones:
            for _ in range(60):
                open_ones.enter_context(connect(port)).sendall(head)
            assert ask(port, "GET", "/languages")[0] == 200


def test_a_key_lets_so_many_requests_pass_in_a_minute(tmp_path):
    (tmp_path / "keys").write_text("# who\nabc 3\n")
    with running(app_before(Languages("en", "de"), keys=read_keys(tmp_path / "keys"))) as port:
        asked = {"q": "a", **EN_DE}
        assert post(port, "/translate", asked) == (403, {"error": MISSING})
        for wrong in ("x", ["abc"], "\ud800"):
            assert post(port, "/detect", {**asked, "api_key": wrong}) == (403, {"error": "Invalid API key"})
        assert post(port, "/translate", {**asked, "api_key": "abc"})[0] == 200
        assert {post(port, "/translate?api_key=abc", asked, kind)[0] for kind in (FORM, JSON)} == {200}
        assert post(port, "/detect", {**asked, "api_key": "abc"}) == (429, {"error": "Slowdown: 3 per 1 minute"})
        assert ask(port, "GET", "/frontend/settings")[2]["keyRequired"] and ask(port, "GET", "/languages")[0] == 200
    for line in ("abc", "abc x", "abc 0", "abc 1\nabc 2", ""):
        (tmp_path / "keys").write_text(line)
        assert "keys" in str(pytest.raises(ValueError, read_keys, tmp_path / "keys").value)


def test_health_is_that_of_the_server_and_metrics_and_the_log_have_no_text(ports, caplog):
    flags, healths = [f"--backend=http://{HOST}:{ports['server']}", "--source_lang=en", "--target_lang=de"], []
    caplog.set_level("INFO", "serving.access")
    for name in ("forth", "nobody"):
        models = gateway.connected(gateway.parse_arguments([*flags, f"--model_name={name}"]))
        ((_, client),) = models.values()
        app = LibreTranslate(lambda models=models: models, is_ready=lambda client=client: client.is_ready(2)).app(())
        with running(Observed(app, ["/health", "/translate", "/download_file"])) as port:
            healths.append(ask(port, "GET", "/health")[0])
            ask(port, "POST", "/translate?q=secret&source=en&target=de&api_key=hidden")
            for path in ("/download_file/secret", "/secret"):
                ask(port, "GET", path)
            page = ask(port, "GET", "/metrics")[2].decode()
    assert healths == [200, 503]
    assert 'gateway_requests_total{method="GET",path="/download_file",status="404"} 1.0' in page
    assert "secret" not in page + caplog.text and "POST /translate 200" in caplog.text


def test_languages_are_those_of_the_exports_and_each_path_has_one_method(ports):
    english, german = {"code": "en", "name": "English"}, {"code": "de", "name": "German"}
    expected = [{**english, "targets": ["de", "en"]}, {**german, "targets": ["de"]}]
    assert ask(ports["gateway"], "GET", "/languages")[2] == expected
    found = {language["code"]: language["targets"] for language in ask(ports["server"], "GET", "/languages")[2]}
    assert found == {"de": ["de", "en"], "en": ["de", "en"], "fr": ["de", "fr"]}
    reply = post(ports["server"], "/translate", {"q": "a", "source": "fr", "target": "en"})
    assert reply == (400, {"error": "English (en) is not available as a target language from French (fr)"})
    for method, path in (("GET", "/translate"), ("POST", "/languages"), ("PUT", "/detect")):
        assert ask(ports["gateway"], method, path)[::2] == (405, {"error": "Method Not Allowed"})


def test_a_model_of_many_languages_has_all_its_directions(tmp_path):
    many = {"default": ["en", "de"], "sources": {"en": "eng", "de": "deu"}, "targets": {"de": "", "en": "", "ja": ""}}
    (toy.write(tmp_path, 3, is_many=True) / "export.json").write_text(json.dumps({"languages": many, "run": {}}))
    flags = ("--model_name=many", "--model_base_path", str(tmp_path))
    with both({"many": tmp_path}) as server, gateway_before(server.address, *flags) as gateway_port:
        for port in (server.port, gateway_port):
            found = ask(port, "GET", "/languages?model=many")[2]
            directions = {"en": ["de", "en", "ja"], "de": ["de", "en", "ja"], "ja": ["ja"]}
            assert {each["code"]: each["targets"] for each in found} == directions
            assert ask(port, "GET", "/languages")[2] == found and ask(port, "GET", "/languages?model=x")[2] == []
            asked = {"q": ["a", "b"], "source": "DE", "target": "ja", "alternatives": 1}
            texts = [upper("de>ja a"), upper("de>ja b")]
            expected = {"translatedText": texts, "alternatives": [[f"{text}!"] for text in texts]}
            assert post(port, "/translate", asked) == (200, expected)
            not_there = (400, {"error": "fr is not supported, only de, en, ja"})
            assert post(port, "/translate", {**asked, "target": "fr"}) == not_there


def test_many_translations_that_wait_do_not_hold_up_other_paths():
    go_on, asked = threading.Event(), []

    def translate(texts):
        asked.append(texts)
        go_on.wait(DEADLINE_SECONDS)
        return shouted(texts)

    with running(app_before(Languages("en", "de"), translate)) as port, ThreadPoolExecutor(50) as pool:
        replies = [pool.submit(post, port, "/translate", {"q": "a", **EN_DE}) for _ in range(50)]
        wait_for(lambda: len(asked) == THREADS)
        assert ask(port, "GET", "/health")[0] == 200 and not any(reply.done() for reply in replies)
        go_on.set()
        assert [reply.result() for reply in replies] == [(200, {"translatedText": "A"})] * 50
