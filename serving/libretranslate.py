"""LibreTranslate's API, which many programs speak: browsers' extensions, editors, chat servers, subtitle tools."""

import asyncio
import contextlib
import json
import re
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import parse_qs

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response

from serving.codes import plain
from serving.errors import ServingError, invalid
from serving.http_server import read_body
from serving.languages import detect, find_language, name_of

MOST_BYTES = 2**20  # Of a body. The event loop parses a body of this size in a twentieth of a second.
MOST_FIELDS = 100  # Of a form.
LONGEST_GLOSSARY = 20_000  # Characters. A thread compiles them for each request, in half a second at most.
THREADS = 32  # Requests that are translated at a time.
TEXTS_AT_ONCE = 64  # A long list leaves room in the model's queue for other requests.
AUTO = "auto"
MOST_DETECTED = 2000  # Characters of a text that tell its language.
ALLOWED = {"allow_methods": ["GET", "POST"], "allow_headers": ["Authorization", "Content-Type"]}
DOCUMENTS = "`python -m keras_transformer gateway` translates HTML and files"
SETTINGS = {"charLimit": -1, "frontendTimeout": 500, "apiKeys": False, "keyRequired": False, "suggestions": False}
SETTINGS |= {"filesTranslation": False, "supportedFilesFormat": []}


class LibreTranslate:
    """The answers of the API. `models` is a function () -> dict, name -> (`Languages`, `Client`).

    `formats` is a dict, format -> (a function as `_translated`, its pool). A program with documents adds "html", and
    answers `translate_file`.
    """

    def __init__(self, models):
        self._models = models  # The pool leaves Starlette's own threads free for other paths.
        self.formats = {"text": (_translated, ThreadPoolExecutor(THREADS, "translate"))}

    def app(self, origins):
        """Makes the `fastapi.FastAPI` app of the API. Pages of the sites `origins` may call it; "*" means all sites."""
        app = FastAPI(openapi_url=None, exception_handlers=EXCEPTION_HANDLERS)
        if origins:
            app.add_middleware(CORSMiddleware, allow_origins=origins, **ALLOWED)
        app.add_api_route("/health", lambda: {"status": "ok"})
        app.add_api_route("/languages", self.languages)
        app.add_api_route("/frontend/settings", self.settings)
        for path in (self.detect, self.translate, self.translate_file):
            app.add_api_route(f"/{path.__name__}", path, methods=["POST"])
        return app

    def languages(self, model: str = ""):
        """Lists the languages, each with its targets. The page asks for those of one `model`."""
        found = [languages for name, (languages, _) in self._models().items() if model in ("", name)]
        targets = {code: {code} for languages in found for code in languages.codes()}
        for languages in found:
            for source, several in languages.directions().items():
                targets[source].update(several)
        return [{**_language(code), "targets": sorted(several)} for code, several in targets.items()]

    def settings(self):
        """Returns the settings of LibreTranslate's own page: no limits, no keys, no files."""
        languages, _ = next(iter(self._models().values()), (None, None))
        language = {"source": _language(AUTO), "target": _language(languages.target)} if languages else None
        return {**SETTINGS, "language": language}

    async def detect(self, request: Request):
        """Returns the languages of the models that a text may be in, the most likely one first."""
        q = _text_of(await _parameters(request), "q")
        found = await asyncio.to_thread(detect, _beginning(q), self._codes())
        likely = [each for number, each in enumerate(found) if number == 0 or each[1] >= 0.01]
        return [_detected(*each) for each in likely]

    async def translate(self, request: Request):
        """Translates a text or a list of texts, with `alternatives` if the client wishes some."""
        asked = await _parameters(request)
        q, count = _text_of(asked, "q"), _count(asked.get("alternatives") or 0)
        (found, probability), *how = await asyncio.to_thread(self.direction, asked, _beginning(q))
        if (name := str(asked.get("format") or "text")) not in self.formats:
            raise invalid(f"{name} format is not supported" + f": {DOCUMENTS}" * (name == "html"))
        if count and name != "text":
            raise invalid(f"Invalid request: alternatives parameter must be <= 0 for the format {name}")
        (work, pool), loop = self.formats[name], asyncio.get_running_loop()
        work, pool = (_unchanged, None) if found == how[-1] else (work, pool)
        texts, translations = q if isinstance(q, list) else [q], []
        for start in range(0, len(texts), TEXTS_AT_ONCE):
            if await request.is_disconnected():
                raise ClientDisconnect
            part = texts[start : start + TEXTS_AT_ONCE]
            translations += await loop.run_in_executor(pool, work, part, count, *how)
        answer = {"translatedText": [best for best, *_ in translations]}
        if plain(asked["source"]) == AUTO:
            answer["detectedLanguage"] = [_detected(found, probability)] * len(texts)
        if count:
            answer["alternatives"] = [others for _, *others in translations]
        return JSONResponse(answer if texts is q else {name: values[0] for name, values in answer.items()})

    async def translate_file(self, request: Request):
        """Refuses a file: this program has no documents."""
        raise HTTPException(403, f"Files translation are disabled on this server: {DOCUMENTS}")

    def direction(self, asked, text=""):
        """Chooses what translates a text, by parameters.

        Returns:
            (source language, its probability), `Client`, its languages, target language. The languages are equal for a
            text that stays as it is, and then there may be no client.
        """
        names, codes = [_text_of(asked, name) for name in ("source", "target")], self._codes()
        glossary, models = _glossary(asked.get("glossary")), self._models().values()
        source, target = (find_language(codes, name) for name in names)
        is_auto = plain(names[0]) == AUTO
        for name, code in zip(names, (source or is_auto, target), strict=True):
            if not code:
                is_many = any(languages.sources for languages, _ in models)
                raise invalid(f"{name} is not supported" + f", only {', '.join(sorted(codes))}" * is_many)
        pairs = {}
        for languages, client in models:
            for of, targets in languages.directions().items():
                pairs |= {(of, into): (languages, client) for into in targets if (of, into) not in pairs}
        probability = 1.0
        if is_auto:
            source, probability = detect(text, [*(of for of, into in pairs if into == target), target])[0]
        if source == target:
            return (source, probability), None, {}, target
        if (source, target) not in pairs:
            of_target, of_source = (f"{name_of(code)} ({code})" for code in (target, source))
            raise invalid(f"{of_target} is not available as a target language from {of_source}")
        languages, client = pairs[source, target]
        named = {"source_lang": source, "target_lang": target} if languages.sources else {}
        return (source, probability), client.keeping(glossary) if glossary else client, named, target

    def _codes(self):
        """The codes of all languages, a tuple."""
        return tuple(dict.fromkeys(code for languages, _ in self._models().values() for code in languages.codes()))


async def refuse(request, error):
    """Answers an `HTTPException` or a `ServingError`: a body with the key "error", as LibreTranslate does."""
    if isinstance(error, HTTPException):
        return JSONResponse({"error": error.detail}, error.status_code, error.headers)
    headers = {"Connection": "close"} if error.http_status == 504 else None  # The rest of the body may still come.
    return JSONResponse({"error": error.message}, error.http_status, headers)


GONE = Response(status_code=499)  # Ends a request whose client has gone.
EXCEPTION_HANDLERS = {HTTPException: refuse, ServingError: refuse, ClientDisconnect: lambda *_: GONE}


async def _parameters(request):
    """Reads the parameters of a request, from its URL and from a body in JSON or of a form: dict."""
    body = await read_body(request, MOST_BYTES, timeout_s=30.0)
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == "application/json" or kind.endswith("+json"):
        try:
            found = json.loads(body)
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            raise invalid("Invalid JSON format")
        return found
    form = {**await form_of(request, kind, body), **request.query_params}
    return {**form, "q": "\n".join(form["q"].splitlines())} if isinstance(form.get("q"), str) else form


async def form_of(request, kind, body, most_files=0):
    """Reads a form, of a content type and in a body: dict, name -> str or `UploadFile`. Raises HTTPException."""
    if kind == "multipart/form-data":

        async def replay():
            return {"type": "http.request", "body": body}

        return dict(await Request(request.scope, replay).form(max_files=most_files, max_fields=MOST_FIELDS))
    try:
        fields = parse_qs(body.decode("utf-8", "replace"), max_num_fields=MOST_FIELDS)
    except ValueError:
        raise invalid(f"Invalid request: a form may have {MOST_FIELDS} fields") from None
    return {name: values[0] for name, values in fields.items()}


def _text_of(parameters, name):
    """Returns the text, or for "q" the text or the list of texts, of a parameter."""
    if not (value := parameters.get(name)):
        raise invalid(f"Invalid request: missing {name} parameter")
    if not all(map(_is_text, value if isinstance(value, list) and name == "q" else [value])):
        raise invalid(f"Invalid request: {name} parameter is not text")
    return value


def _is_text(value):  # JSON can write half of a surrogate pair, and UTF-8 cannot.
    return isinstance(value, str) and value.encode("utf-8", "ignore").decode("utf-8") == value


def _glossary(value):
    """Checks a glossary: in JSON an object, in a form its JSON. Returns a dict, source form -> target form."""
    with contextlib.suppress(ValueError, RecursionError):
        value = json.loads(value) if isinstance(value, str) and value else value or {}
    forms = [*value, *value.values()] if isinstance(value, dict) else [None]
    if not all(_is_text(form) and form.strip() for form in forms):
        raise invalid('Invalid request: glossary parameter is not an object of terms, such as {"term": "translation"}')
    if sum(map(len, forms)) > LONGEST_GLOSSARY:
        raise invalid(f"Invalid request: glossary parameter may have {LONGEST_GLOSSARY} characters")
    return value


def _count(value):
    try:
        return max(0, int(value))
    except (TypeError, ValueError, OverflowError):
        raise invalid("Invalid request: alternatives parameter is not a number") from None


def _translated(texts, count, client, languages, target):
    """Translates texts: for each a list of str, the translation and at most `count` others."""
    if not count:
        return [[found.text] for found in client.translate(texts, **languages)]
    hypotheses = [[found.text for found in several] for several in client.alternatives(texts, **languages)]
    return [list(dict.fromkeys([best, *filter(None, others)]))[: 1 + count] for best, *others in hypotheses]


def _unchanged(texts, *_):
    return [[text] for text in texts]


def _beginning(q):
    """The beginning of a text, or of a list of texts, that tells its language: without tags."""
    text = (q if isinstance(q, str) else " ".join(text[:MOST_DETECTED] for text in q))[:MOST_DETECTED]
    return re.sub(r"<[^<>]*>", " ", text)


def _detected(code, probability):
    return {"confidence": round(100.0 * probability, 1), "language": code}


def _language(code):
    return {"code": code, "name": "Auto Detect" if code == AUTO else name_of(code)}
