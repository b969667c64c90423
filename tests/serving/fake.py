"""Servers of a function: REST, gRPC and the page as they are, before models and a predictor that are made up."""

import contextlib
import math
import re
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf.meta_graph_pb2 import SignatureDef

from keras_transformer.translation.options import INPUTS
from serving.errors import invalid
from serving.metrics import Metrics
from serving.predictor import Prediction
from serving.servable import Servable
from tests.serving import live

SIGNATURES = {
    name: SignatureDef(inputs={key: {"dtype": tf.as_dtype(dtype).as_datatype_enum} for key, dtype in inputs.items()})
    for name, inputs in INPUTS.items()
}
SIGNATURES["serving_default"] = SIGNATURES["translate"]


class Models:
    """Models of these names, with all signatures of an export, and with any version and label."""

    def __init__(self, *names):
        self.served, self.languages = list(names), None

    def __contains__(self, name):
        return name in self.served

    def names(self):
        return self.served

    @contextlib.contextmanager
    def use(self, name, version=None, label=None):
        signatures = {key: SignatureDef.FromString(each.SerializeToString()) for key, each in SIGNATURES.items()}
        for each in signatures.values() if self.languages and self.languages.sources else ():
            each.inputs["source_lang"].dtype = each.inputs["target_lang"].dtype = tf.string.as_datatype_enum
        yield Servable(name, 3, None, signatures, self.languages)


class Predictor:
    """Answers with what a function (`ModelSpec`, signature's name, dict name -> list) gives: dict name -> list."""

    def __init__(self, answer):
        self.metrics = Metrics()
        self._answer = answer
        self._pool = ThreadPoolExecutor(16)

    def submit(self, model, signature_name, inputs, outputs=None, timeout_s=None):
        return self._pool.submit(self._predict, model, signature_name, inputs)

    def _predict(self, model, signature_name, inputs):
        outputs = self._answer(model, signature_name, {name: array.tolist() for name, array in inputs.items()})
        return Prediction(3, signature_name, {name: _array(values) for name, values in outputs.items()})


class Held:
    """A predictor whose futures a test answers."""

    def __init__(self):
        self.metrics, self.futures, self.timeouts = Metrics(), [], []

    def submit(self, model, signature_name, inputs, outputs=None, timeout_s=None):
        self.timeouts.append(timeout_s)
        self.futures.append(Future())
        return self.futures[-1]

    def wait_for(self, count):
        """The future of the request of this number, the first is 1."""
        live.wait_for(lambda: len(self.futures) >= count)
        return self.futures[count - 1]


def _array(values):
    array = np.array(values)
    if array.dtype.kind == "U":
        array = np.char.encode(array, "utf-8")
    return array.astype(object if array.dtype.kind == "S" else np.float32)


@contextlib.contextmanager
def serve(api, answer, port=0, languages=None):
    """Serves a function by "rest" or "grpc" to the end of the block. Yields how a `Client` finds it, a dict."""
    models, predictor = Models(), Predictor(answer)
    models.languages = languages
    if api == "rest":
        with live.serve(predictor, models, port=port) as found:
            yield {"url": f"http://{live.HOST}:{found}"}
    else:
        with live.serve_grpc(predictor, models, port) as address:
            yield {"grpc": address}


class Page:
    """The page and a server whose translations are made up. It can be stopped and started again on the same port.

    The translation of a text is its words in upper case. A word is two pieces, which are 0.9 and 0.5 likely: its first
    two letters and the rest, if there is one. Each piece of a translation attends to the last piece of its own word
    with 0.75, and to the first piece of all with 0.25 more.

    A test may change `lacks`, signatures that the model does not have, and `has_placeholders`, whether it reads "⟦0⟧".
    `asked` is a list of (signature, text), and `directions` one of (source, target) of requests for `alternatives`.
    """

    def __init__(self, languages=None):
        self.lacks, self.asked, self.directions, self.has_placeholders = set(), [], [], True
        self.languages, self.port = languages, 0
        self.start()

    @property
    def url(self):
        return f"http://{live.HOST}:{self.port}/"

    def start(self):
        models = Models("translator")
        models.languages = self.languages
        self._running = contextlib.ExitStack()
        self.port = self._running.enter_context(live.serve(Predictor(self._answer), models, port=self.port))

    def stop(self):
        self._running.close()

    def texts(self, signature):
        return [text for asked, text in self.asked if asked == signature]

    def _answer(self, model, signature, inputs):
        text = inputs["text"][0].decode()
        self.asked.append((signature, text))
        if signature == "alternatives" and "source_lang" in inputs:
            self.directions.append((inputs["source_lang"][0].decode(), inputs["target_lang"][0].decode()))
        if signature in self.lacks:
            raise invalid(f'Serving signature name: "{signature}" not found in signature def')
        text = text if self.has_placeholders else text.replace("⟦", "")
        return {name: [values] for name, values in FUNCTIONS[signature](text).items()}


def written(text):
    """A text in upper case, with a placeholder in the place of the word before it."""
    return re.sub(r"\w+(?=⟦)", "", text).upper()


def translate(text):
    return {"translation": written(text), "score": -0.5}


def alternatives(text):
    words = written(text).split()
    others = [" ".join([*words[:-1], "ELSE"]), " ".join([*words, "MORE"])]
    return {"translations": [written(text), *others, others[-1]], "scores": [-0.5, -0.75, -1.25, -1.25]}


def explain(text):
    sources, pieces, owners = [], [], []
    for word, translation in zip(text.split(), written(text).split(), strict=True):
        sources += pieces_of(word)
        pieces += pieces_of(translation)
        owners += [len(sources) - 1] * (len(pieces) - len(owners))
    rows = [[0.75 * (s == own) + 0.25 * (s == 0) for s in range(len(sources))] for own in owners]
    return {
        "source_pieces": sources,
        "pieces": [*pieces, "</s>"],
        "token_scores": [*(math.log(0.9 if piece[0] == "▁" else 0.5) for piece in pieces), math.log(0.8)],
        "alignment": [*rows, [1 / len(sources)] * len(sources)],
    }


def pieces_of(word):
    return re.findall(r"⟦\d⟧|▁[^⟦]{0,2}|[^⟦▁]+", f"▁{word}")


FUNCTIONS = {"translate": translate, "alternatives": alternatives, "explain": explain}
