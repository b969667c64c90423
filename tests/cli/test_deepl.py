"""DeepL's API of the gateway, asked by DeepL's own client for Python and by forms as older plug-ins send them."""

import contextlib
import json
from urllib.parse import urlencode

import deepl
import pytest

from keras_transformer.cli.document_api import DocumentApi
from serving.client import Client
from serving.deepl import app_of
from serving.keys import Keys
from serving.libretranslate import LibreTranslate
from tests.cli.test_gateway import MANY, ONE, Swapping
from tests.serving.fake import serve
from tests.serving.live import HOST, ask, running

JSON = {"Content-Type": "application/json"}


@contextlib.contextmanager
def gateway(languages=ONE, api=DocumentApi, keys=None):
    """The port of a gateway with DeepL's API, before a server whose model is a function."""
    with serve("grpc", Swapping(), languages=languages) as where, Client(**where) as client:
        with running(app_of(api(lambda: {"m": (languages, client)}, keys=keys), ())) as port:
            yield port


def client_of(port, key="any"):
    client = deepl.DeepLClient(key, server_url=f"http://{HOST}:{port}")
    deepl.http_client.max_network_retries = 0
    return client


@pytest.fixture(scope="module")
def port():
    with gateway() as found:
        yield found


def test_deepls_own_client_translates_a_text_and_a_list(port):
    client = client_of(port)
    found = client.translate_text("one two", target_lang="DE", source_lang="EN")
    assert (found.text, found.detected_source_lang, found.billed_characters) == ("TWO ONE", "EN", 7)
    several = client.translate_text(["one two", "", "a b c"], source_lang="en", target_lang="de", split_sentences="0")
    assert [each.text for each in several] == ["TWO ONE", "", "C B A"]
    texts = [f"text {number}" for number in range(150)]
    many = client.translate_text(texts, source_lang="EN", target_lang="DE", context="numbers")
    assert [each.text for each in many] == [f"{number} TEXT" for number in range(150)]


def test_tags_stay_around_their_words_and_ignored_ones_keep_their_content(port):
    client, how = client_of(port), {"source_lang": "EN", "target_lang": "DE"}
    assert client.translate_text("<p>one <b>two</b></p>", tag_handling="html", **how).text == "<p><b>TWO</b> ONE</p>"
    assert client.translate_text('one <a id="7">two</a>', tag_handling="xml", **how).text == '<a id="7">TWO</a> ONE'
    kept = client.translate_text('one <x id="7">two</x> three', tag_handling="xml", ignore_tags=["x", "y"], **how).text
    assert kept.count('<x id="7">two</x>') == 1 and "translate=" not in kept and {"ONE", "THREE"} < {*kept.split()}
    plain = client.translate_text("a <b>c</b>", **how)
    assert plain.text == "<B>C</B> A"  # without tag_handling, tags are text


def test_languages_are_those_of_the_models_and_are_detected_text_by_text():
    with gateway(MANY) as port:
        client = client_of(port)
        languages = [(each.code, each.name) for each in client.get_source_languages()]
        assert languages == [("DE", "German"), ("EN", "English"), ("FR", "French")]
        assert [each.supports_formality for each in client.get_target_languages()] == [False] * 3
        texts = ["The house of my parents is old.", "Das Haus meiner Eltern ist alt.", "La maison de mes parents"]
        found = client.translate_text(texts, target_lang="EN-US")
        assert [each.detected_source_lang for each in found] == ["EN", "DE", "FR"]
        assert found[0].text == texts[0]  # it is in English already
        assert [each.text for each in found[1:]] == [" ".join(text.upper().split()[::-1]) for text in texts[1:]]


def test_a_form_as_older_plug_ins_send_it_may_have_several_texts(port):
    fields = [("auth_key", "k"), ("text", "one two"), ("text", "a\nb"), ("target_lang", "DE"), ("source_lang", "EN")]
    status, _, reply = ask(port, "POST", "/v2/translate", urlencode(fields).encode())
    assert (status, [each["text"] for each in reply["translations"]]) == (200, ["TWO ONE", "B A"])
    assert [*reply["translations"][0]] == ["detected_source_language", "text"]
    again = [f'--x\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n' for name, value in fields]
    headers = {"Content-Type": "multipart/form-data; boundary=x"}
    assert ask(port, "POST", "/v2/translate", "".join([*again, "--x--\r\n"]).encode(), headers)[::2] == (200, reply)


def test_a_mistake_has_a_message_as_deepls_own(port):
    for change, message in (
        ({"text": None}, "Parameter 'text' not specified."),
        ({"text": []}, "Parameter 'text' not specified."),
        ({"text": [7]}, "Value for 'text' not supported: it must be a list of texts"),
        ({"text": ["\ud800"]}, "Value for 'text' not supported: it must be a list of texts"),
        ({"target_lang": None}, "Parameter 'target_lang' not specified."),
        ({"target_lang": "XX"}, "XX is not supported"),
        ({"target_lang": ["DE"]}, "Invalid request: target parameter is not text"),
        ({"source_lang": 7}, "Invalid request: source parameter is not text"),
        ({"glossary_id": "g"}, "Value for 'glossary_id' not supported: this server has none; leave it out"),
        ({"formality": "less"}, "'formality' is not supported for given 'target_lang'."),
        ({"tag_handling": "json"}, "Value for 'tag_handling' not supported: use html or xml"),
        ({"tag_handling": "xml", "ignore_tags": 7}, "Value for 'ignore_tags' not supported: it must be names of"),
        ({"tag_handling": "xml", "ignore_tags": ["<"]}, "Value for 'ignore_tags' not supported: it must be names of"),
    ):
        body = {"text": ["one"], "source_lang": "EN", "target_lang": "DE", **change}
        status, _, reply = ask(port, "POST", "/v2/translate", json.dumps(body).encode(), JSON)
        assert status == 400 and reply["message"].startswith(message) and [*reply] == ["message"]


def test_a_key_stands_in_the_header_a_wrong_one_is_refused_and_usage_counts_characters():
    with gateway(keys=Keys({"right": 3})) as port:
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


def test_without_documents_tags_are_refused_with_the_way_out():
    with gateway(api=LibreTranslate) as port, pytest.raises(deepl.DeepLException, match="keras_transformer gateway"):
        client_of(port).translate_text("<b>a</b>", tag_handling="html", source_lang="EN", target_lang="DE")
