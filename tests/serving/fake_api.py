"""A server of the page that answers as TensorFlow Serving does, with translations that are made up.

The translation of a text is its words in upper case. A word is two pieces, which are 0.9 and 0.5 likely: its first two
letters and the rest, if there is one. Each piece of a translation attends to the last piece of its own word with 0.75,
and to the first piece of all with 0.25 more.
"""

import json
import math
import threading
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

PAGE = Path(__file__).parents[2] / "serving" / "page"
NO_SIGNATURE = 'Serving signature name: "{}" not found in signature def'


class FakeApi:
    """A server in a thread, which can be stopped and started again on the same port.

    Args:
        models: the names of the models that it offers.
        lacks: signatures that the models do not have.
        answers: text -> (status, message) of texts that are refused, or the outputs of all signatures.
        holds: text -> threading.Event that its answers wait for.
    """

    def __init__(self):
        self.models, self.lacks, self.answers, self.holds = ["translator"], set(), {}, {}
        self.asked = []  # (model, signature, text)
        self.port = 0
        self.start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}/"

    def start(self):
        self.server = ThreadingHTTPServer(("127.0.0.1", self.port), type("Handler", (Handler,), {"api": self}))
        self.port = self.server.server_port
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

    def stop(self):
        self.server.shutdown()
        self.server.server_close()

    def texts(self, signature):
        return [text for _, asked, text in self.asked if asked == signature]

    def answer(self, model, signature, text):
        """The status and the body for a text."""
        self.asked.append((model, signature, text))
        if text in self.holds:
            self.holds[text].wait(30)
        answer = self.answers.get(text, {})
        if isinstance(answer, tuple):
            return answer[0], {"error": answer[1]}
        if signature in self.lacks:
            return 400, {"error": NO_SIGNATURE.format(signature)}
        return 200, {"predictions": [FUNCTIONS[signature](text) | answer.get(signature, {})]}


class Handler(SimpleHTTPRequestHandler):
    """Files of the page, the list of models, and predictions. Answers close their connections: none outlives `stop`."""

    api = None

    def __init__(self, *args):
        super().__init__(*args, directory=PAGE)

    def do_GET(self):
        if self.path == "/page/models":
            return self.reply(200, {"models": self.api.models})
        return super().do_GET()

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        model = self.path.removeprefix("/v1/models/").removesuffix(":predict")
        (instance,) = body["instances"]
        return self.reply(*self.api.answer(model, body["signature_name"], instance["text"]))

    def reply(self, status, body):
        body = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        pass


def translate(text):
    return {"translation": text.upper(), "score": -0.5}


def alternatives(text):
    words = text.upper().split()
    others = [" ".join([*words[:-1], "ELSE"]), " ".join([*words, "MORE"])]
    return {"translations": [text.upper(), *others, others[-1]], "scores": [-0.5, -0.75, -1.25, -1.25]}


def explain(text):
    sources, targets, owners = [], [], []
    for word in text.split():
        parts = [word[:2], *([word[2:]] if word[2:] else [])]
        sources += [("▁" if not n else "") + part for n, part in enumerate(parts)]
        targets += [("▁" if not n else "") + part.upper() for n, part in enumerate(parts)]
        owners += [len(sources) - 1] * len(parts)
    rows = [[0.75 * (s == own) + 0.25 * (s == 0) for s in range(len(sources))] for own in owners]
    scores = [math.log(0.9 if piece.startswith("▁") else 0.5) for piece in targets]
    return {
        "source_pieces": sources,
        "pieces": [*targets, "</s>"],
        "token_scores": [*scores, math.log(0.8)],
        "alignment": [*rows, [1 / len(sources)] * len(sources)],
    }


FUNCTIONS = {"translate": translate, "alternatives": alternatives, "explain": explain}
