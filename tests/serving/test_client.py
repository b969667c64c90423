import contextlib
import re
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from grpc import StatusCode

from serving.client import Client, Translation
from serving.errors import ServingError
from serving.gateway import connected, parse_arguments
from serving.languages import Languages
from tests.serving.fake import serve
from tests.serving.live import HOST, free_port, refusal

ROOT = Path(__file__).parents[2]
SECONDS = 60  # that a test waits at most


@pytest.fixture(params=["rest", "grpc"])
def api(request):
    return request.param


class Upper:
    """Answers with upper case and the length of each text, and notes what it was asked."""

    def __init__(self, failures=()):
        self.asked, self._failures, self._lock = [], list(failures), threading.Lock()

    def __call__(self, model, signature_name, inputs):
        with self._lock:
            self.asked.append((model, signature_name, inputs))
            failure = self._failures.pop(0) if self._failures else None
        if failure:
            raise failure
        texts = inputs["text"]
        if signature_name == "explain":
            return {"source_pieces": [[text] for text in texts], "pieces": [[text] for text in texts]}
        return {"translation": [text.upper() for text in texts], "score": [float(len(text)) for text in texts]}


@contextlib.contextmanager
def client_of(api, answer, **options):
    with serve(api, answer) as where, Client(**where, **options) as client:
        yield client


def test_any_number_of_texts_is_split_the_longest_first_and_comes_back_in_order(api):
    upper, ended = Upper(), []
    texts = ["ccc ddd", "", "a", "grö", "one two three", "bb", "x\ny"]
    with client_of(api, upper, max_batch_size=3, in_flight=1) as client:
        found = client.translate(texts, ended.append)
        assert client.translate([]) == []
    assert found == [Translation(text.encode().upper().decode(), len(text.encode())) for text in texts]
    asked = [[text.decode() for text in inputs["text"]] for _, _, inputs in upper.asked]
    assert sorted(asked[0]) == ["ccc ddd", "grö", "one two three"] and asked[2] == [""] and sum(ended) == len(texts)
    assert sorted(sum(asked, [])) == sorted(texts)


def test_options_are_one_for_all_texts_or_one_for_each(api):
    upper = Upper()
    with client_of(api, upper) as client:
        client.translate_with_options(["xx", "y"], length_penalty=1.5, prefix=["\ud83dp", ""], beam_size=[2, 3])
        client.sample(["xx", "y"], seed=[2**40, -5], temperature=0.5, top_k=7)
    (_, with_options, options), (_, sample, sampling) = upper.asked
    assert (with_options, sample) == ("translate_with_options", "sample")
    texts, same = {"text": [b"xx", b"y"]}, {"length_penalty": [1.5, 1.5], "repetition_penalty": [1.0, 1.0]}
    same |= {"max_length": [0, 0], "no_repeat_ngram": [0, 0]}
    assert options == {**texts, "prefix": ["\ufffdp".encode(), b""], "beam_size": [2, 3], **same}
    assert sampling == {**texts, "temperature": [0.5] * 2, "top_k": [7, 7], "top_p": [1.0] * 2, "seed": [2**40, -5]}


def test_rows_of_every_signature_come_without_padding(api):
    answer = {"pieces": [["a", "</s>"], ["</s>", ""]], "token_scores": [[-3, -4], [-5, 0]]}
    sources, rows = [["ü", "b", "</s>"], ["</s>", "", ""]], [[[0.5, 0.25, 0.25], [0, 0, 1]], [[1, 0, 0], [0, 0, 0]]]
    outputs = {
        "alternatives": {"translations": [[b"a", b"b"], ["ö".encode(), b"d"]], "scores": [[-1, -2], [-3, -4]]},
        "score": {"score": [-1, -2], **answer},
        "explain": {"source_pieces": sources, "alignment": rows, **answer},
    }
    with client_of(api, lambda model, name, inputs: outputs[name]) as client:
        assert client.alternatives(["xx", "y"]) == [[("a", -1.0), ("b", -2.0)], [("ö", -3.0), ("d", -4.0)]]
        expected = [(-1.0, ["a", "</s>"], [-3.0, -4.0]), (-2.0, ["</s>"], [-5.0])]
        assert client.score(["xx", "y"], ["a", ""]) == expected
        first = (sources[0], ["a", "</s>"], [-3.0, -4.0], rows[0])
        assert client.explain(["xx", "y"]) == [first, (["</s>"], ["</s>"], [-5.0], [[1.0]])]


def test_the_languages_of_the_model_are_known_and_asked_for(api):
    def answer(model, signature_name, inputs):
        if signature_name == "explain":
            pieces = [[text.replace(b">>fr<< a", b"a")] for text in inputs["text"]]
            return {"source_pieces": pieces, "pieces": pieces}
        return {"translation": inputs["target_lang"], "score": [1.0] * len(inputs["text"])}

    many = Languages("en", "de", ("en",), ("de", "fr"))
    with serve(api, answer, languages=many) as where, Client(**where) as client:
        assert client.knows("fr") and not client.knows("xx")
        assert [found.text for found in client.translate(["a", "b"], target_lang=["fr", "de"])] == ["fr", "de"]
        assert "no option beam" in str(pytest.raises(TypeError, client.translate, ["a"], beam=3).value)


def test_placeholders_go_to_the_server_and_words_come_back(api, tmp_path):
    texts, words = ["two of 5 km", "see http://a.b", "⟦4⟧ two"], ["DUO of 5 km", "see http://a.b", "⟦4⟧ DUO"]
    glossary, asked = tmp_path / "terms.tsv", []
    glossary.write_text("two\tDUO\n", encoding="utf-8")

    def echo(model, signature_name, inputs):  # a placeholder comes in the place of the word before it
        asked.append((signature_name, [text.decode() for text in inputs["text"]]))
        texts = [re.sub(r"[^\W\d]+(?=⟦)", "", text.decode()).encode() for text in inputs["text"]]
        scores, pieces = [0.5] * len(texts), [["▁".encode(), "⟦0⟧".encode()]]
        several = [[text, b"(" + text + b")"] for text in texts]
        outputs = {
            "explain": {"source_pieces": pieces, "pieces": pieces},
            "alternatives": {"translations": several, "scores": [[1, 2]] * len(texts)},
            "score": {"score": scores, "token_scores": [[0.5]] * len(texts), "pieces": [[b"a"]] * len(texts)},
        }
        return outputs.get(signature_name, {"translation": texts, "score": scores})

    with client_of(api, echo, glossary=glossary, protect=True) as client:
        assert client.translate(texts) == [Translation(word, 0.5) for word in words]
        assert [[found.text for found in row] for row in client.alternatives(texts)] == [[w, f"({w})"] for w in words]
        assert [row.text for row in client.sample(texts, seed=1)] == words
        assert client.score(["two"], ["DUO"])[0].score == 0.5
    signatures = [signature for signature, _ in asked]
    assert signatures == ["explain", "translate", "alternatives", "sample", "score"]  # the model is examined once
    assert sorted(asked[1][1]) == sorted(["two⟦0⟧ of ⟦1⟧", "see ⟦0⟧", "⟦0⟧ two⟦1⟧"]) and asked[-1][1] == ["two"]


def test_a_gateway_asks_for_the_model_and_the_label_of_its_flags(api, tmp_path, capsys):
    (tmp_path / "3").mkdir()
    (tmp_path / "3" / "export.json").write_text('{"run": {"source_lang": "en", "target_lang": "de"}}')
    upper, where = Upper(), ["--model_base_path", str(tmp_path), "--model_name=m", "--label=stable"]
    with serve(api, upper) as found:
        backend = found["url"] if api == "rest" else f"grpc://{found['grpc']}"
        ((languages, client),) = connected(parse_arguments(["--backend", backend, *where])).values()
        with client:
            assert [row.text for row in client.translate(["a"])] == ["A"]
    assert languages[:2] == ("en", "de") and upper.asked[0][0] == ("m", None, "stable")
    for flags in ([], ["--source_lang=en"], ["--source_lang=", "--target_lang=de"]):
        pytest.raises(SystemExit, parse_arguments, ["--backend=grpc://localhost:8500", *flags])
        assert "give either both --source_lang and --target_lang, or --model_base_path" in capsys.readouterr().err


BUSY = ServingError(StatusCode.UNAVAILABLE, "The queue is full.")
REFUSALS = [ServingError(StatusCode.INVALID_ARGUMENT, "m_lang"), ServingError(StatusCode.INTERNAL, "source_lang")]


@pytest.mark.parametrize("failures, tries", [([BUSY] * 2, 3), ([BUSY] * 9, 3), *[([error], 1) for error in REFUSALS]])
def test_a_busy_server_is_asked_again_so_often_and_no_other(api, failures, tries):
    upper = Upper(failures)
    with client_of(api, upper, retries=2) as client:
        if len(failures) == 2:
            assert client.translate(["a"]) == [Translation("A", 1.0)]
        else:
            code, message = refusal(client.translate, ["a"])
            assert code in (failures[0].code.name, "UNKNOWN") and message == failures[0].message  # UNKNOWN is 500, too
    assert len(upper.asked) == tries


def test_a_server_that_is_not_there_is_unavailable_and_one_that_comes_is_found(api):
    port = free_port()
    where = {"grpc": f"{HOST}:{port}"} if api == "grpc" else {"url": f"http://{HOST}:{port}"}
    with Client(**where, retries=1) as client:
        code, message = refusal(client.translate, ["a"])
    assert code == "UNAVAILABLE" and "refused" in message
    with Client(**where, retries=99) as client, ThreadPoolExecutor(1) as pool:
        found = pool.submit(client.translate, ["a"])
        time.sleep(0.3)
        with serve(api, Upper(), port):
            assert found.result(SECONDS) == [Translation("A", 1.0)]


def test_an_address_and_a_timeout_that_cannot_be_are_refused_at_once():
    urls = ("", "localhost:8501", "grpc://localhost:8500", "http://", "http://localhost:99999", "http://localhost:0")
    addresses = ("", "localhost", "http://localhost:8500", ":8500", "localhost:99999", "::1:8500")
    given = [*({"url": url} for url in urls), *({"grpc": address} for address in addresses), {}]
    for options in [*given, *({"grpc": "[::1]:1", "timeout": seconds} for seconds in (0, -1, float("nan")))]:
        assert "must be" in str(pytest.raises(ValueError, Client, **options).value)
    for address in ("dns:translator:8500", "dns:///translator:8500", "unix:serving.sock", "ipv4:10.0.0.1:8500"):
        Client(grpc=address).close()


def test_the_timeout_ends_a_request_that_takes_too_long_and_its_repetitions(api):
    end = threading.Event()
    with client_of(api, lambda *_: end.wait(SECONDS), timeout=0.2) as client:
        assert refusal(client.translate, ["a"]) == ("DEADLINE_EXCEEDED", "no answer within 0.2 seconds")
        end.set()
    with client_of(api, Upper([BUSY] * 10**4), timeout=0.3, retries=10**4) as client:
        assert refusal(client.translate, ["a"])[0] in ("UNAVAILABLE", "DEADLINE_EXCEEDED")


def test_the_command_gives_a_line_for_each_line_in_order_or_a_mistake_in_one():
    source = b"\xef\xbb\xbfone\r\n\n\xff two\nthree words long\nx\x0by\nlast without end"
    lines = ["ONE", "", "\ufffd TWO", "THREE WORDS LONG", "X\x0bY", "LAST WITHOUT END"]
    unknown = b"error: the model has no target language xx. With one direction, omit --target_lang\n"
    with serve("rest", Upper()) as where:
        for flags, expected in (
            (["--max_batch_size", "2"], (0, "".join(f"{line}\n" for line in lines).encode(), b"")),
            (["--target_lang", "xx"], (2, b"", unknown)),
        ):
            words = [sys.executable, "-m", "serving.client", "--url", where["url"], *flags]
            found = subprocess.run(words, cwd=ROOT, input=source, capture_output=True, timeout=SECONDS)
            assert (found.returncode, found.stdout, found.stderr) == expected
