"""LibreTranslate's API, which many programs speak: browsers' extensions, editors, chat servers, subtitle tools."""

import asyncio
import contextlib
import json
import re
import threading
import time
from concurrent.futures import ThreadPoolExecutor

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse, Response

from serving.codes import plain
from serving.errors import ServingError, invalid
from serving.http_server import while_connected
from serving.languages import detect, find_language, name_of
from serving.parameters import query_of, read_parameters

LONGEST_GLOSSARY = 20_000  # Characters. A thread compiles them for each request, in half a second at most.
TOO_LONG = f"Invalid request: glossary parameter may have {LONGEST_GLOSSARY} characters"
SHORT_GLOSSARY = 1000  # Characters. Longer ones are compiled one after another.
LONGEST_ANSWER = 600.0  # Seconds for a request, after which its client has no answer.
THREADS = 32  # Requests that are translated at a time.
TEXTS_AT_ONCE = 64  # A long list leaves room in the model's queue for other requests.
AUTO = "auto"
LONGEST_CODE = 100  # Characters of a language.
MOST_DETECTED = 2000  # Characters of a text that tell its language.
ALLOWED = {"allow_methods": ["GET", "POST"], "allow_headers": ["Authorization", "Content-Type"]}
DOCUMENTS = "`python -m keras_transformer gateway` translates HTML and files"
SETTINGS = {"charLimit": -1, "frontendTimeout": 500, "apiKeys": False, "keyRequired": False, "suggestions": False}
SETTINGS |= {"filesTranslation": False, "supportedFilesFormat": []}


class LibreTranslate:
    """The answers of the API. `models` is a function () -> dict, name -> (`Languages`, `Client`). `keys` are the
    `Keys` that requests need, or None. `is_ready` is a function () -> whether their server answers, or None.

    `formats` is a dict, format -> (a function as `_translated`, its pool). A program with documents adds "html", and
    answers `translate_file`.
    """

    def __init__(self, models, keys=None, is_ready=None):
        self._keys, self._is_ready = keys, is_ready
        self._asking = None  # a `asyncio.Task` of `health`
        self._models = models  # The pool leaves Starlette's own threads free for other paths.
        self.formats = {"text": (_translated, ThreadPoolExecutor(THREADS, "translate"))}
        self._compiling = ThreadPoolExecutor(1, "glossary")

    def app(self, origins):
        """Makes the `Starlette` app of the API. Pages of the sites `origins` may call it; "*" means all sites."""
        app = Starlette(exception_handlers=EXCEPTION_HANDLERS)
        if origins:
            app.add_middleware(CORSMiddleware, allow_origins=origins, **ALLOWED)
        app.add_route("/health", self.health)
        app.add_route("/languages", lambda request: JSONResponse(self.languages(query_of(request).get("model"))))
        app.add_route("/frontend/settings", lambda request: JSONResponse(self.settings()))
        for path in (self.detect, self.translate, self.translate_file):
            app.add_route(f"/{path.__name__}", path, methods=["POST"])
        return app

    async def health(self, request):
        """Says whether the servers of the models answer. Requests at the same time wait for the same answer."""
        if self._is_ready and (self._asking is None or self._asking.done()):
            self._asking = asyncio.create_task(asyncio.to_thread(self._is_ready))
        if self._asking is None or await asyncio.shield(self._asking):
            return JSONResponse({"status": "ok"})
        return JSONResponse({"status": "error", "error": "the server of the model does not answer"}, 503)

    def close(self):
        """Ends all work that is left when the server has stopped. Texts have none."""

    def languages(self, model=None):
        """Lists the languages, each with its targets. The page asks for those of one `model`."""
        found = [languages for name, (languages, _) in self._models().items() if model in (None, "", name)]
        targets = {code: {code} for languages in found for code in languages.codes()}
        for languages in found:
            for source, several in languages.directions().items():
                targets[source].update(several)
        return [{**_language(code), "targets": sorted(several)} for code, several in targets.items()]

    def settings(self):
        """Returns the settings of LibreTranslate's own page: no limits, no files, and whether there are keys."""
        languages, _ = next(iter(self._models().values()), (None, None))
        language = {"source": _language(AUTO), "target": _language(languages.target)} if languages else None
        has_keys = self._keys is not None
        return {**SETTINGS, "apiKeys": has_keys, "keyRequired": has_keys, "language": language}

    async def detect(self, request):
        """Returns the languages of the models that a text may be in, the most likely one first."""
        asked = await read_parameters(request)
        self.check_key(asked)
        q = _text_of(asked, "q")
        found = await asyncio.to_thread(detect, beginning(q), self._codes())
        likely = [each for number, each in enumerate(found) if number == 0 or each[1] >= 0.01]
        return JSONResponse([_detected(*each) for each in likely])

    async def translate(self, request):
        """Translates a text or a list of texts, with `alternatives` if the client wishes some."""
        asked = await read_parameters(request)
        self.check_key(asked)
        q, count = _text_of(asked, "q"), _count(asked.get("alternatives") or 0)
        (found, probability), *how = await self.direction(asked, beginning(q))
        if (name := str(asked.get("format") or "text")) not in self.formats:
            raise invalid(f"{name} format is not supported" + f": {DOCUMENTS}" * (name == "html"))
        if count and name != "text":
            raise invalid(f"Invalid request: alternatives parameter must be <= 0 for the format {name}")
        work, pool = (unchanged, None) if found == how[-1] else self.formats[name]
        texts, translations, until = q if isinstance(q, list) else [q], [], time.monotonic() + LONGEST_ANSWER
        for start in range(0, len(texts), TEXTS_AT_ONCE):
            part = texts[start : start + TEXTS_AT_ONCE]
            translations += await finished(request, until, pool, work, part, count, *how)
        answer = {"translatedText": [best for best, *_ in translations]}
        if plain(asked["source"]) == AUTO:
            answer["detectedLanguage"] = [_detected(found, probability)] * len(texts)
        if count:
            answer["alternatives"] = [others for _, *others in translations]
        return JSONResponse(answer if texts is q else {name: values[0] for name, values in answer.items()})

    def check_key(self, asked):
        """Raises ServingError for parameters without a key, if requests need one."""
        if self._keys:
            self._keys.check(asked)

    async def translate_file(self, request):
        """Refuses a file: this program has no documents."""
        raise HTTPException(403, f"Files translation are disabled on this server: {DOCUMENTS}")

    async def direction(self, asked, text=""):
        """Chooses what translates a text, by parameters.

        Returns:
            (source language, its probability), `Client`, its languages, target language. The languages are equal for a
            text that stays as it is, and then there may be no client.
        """
        glossary = _glossary(asked.get("glossary"))
        pool = self._compiling if sum(map(len, glossary)) > SHORT_GLOSSARY else None
        return await asyncio.get_running_loop().run_in_executor(pool, self._direction, asked, text, glossary)

    def _direction(self, asked, text, glossary):
        names, codes = [_text_of(asked, name)[:LONGEST_CODE] for name in ("source", "target")], self._codes()
        models = self._models().values()
        source, target = (find_language(codes, name) for name in names)
        is_auto = plain(names[0]) == AUTO
        for name, code in zip(names, (source or is_auto, target), strict=True):
            if not code:
                is_many = any(languages.sources for languages, _ in models)
                raise invalid(f"{name} is not supported" + f", only {', '.join(sorted(codes))}" * is_many)
        able = {}  # source -> the first model from it to the target
        for languages, client in models:
            for of, targets in languages.directions().items():
                if target in targets:
                    able.setdefault(of, (languages, client))
        probability = 1.0
        if is_auto:
            source, probability = detect(text, [*able, target])[0]
        if source == target:
            return (source, probability), None, {}, target
        if source not in able:
            of_target, of_source = (f"{name_of(code)} ({code})" for code in (target, source))
            raise invalid(f"{of_target} is not available as a target language from {of_source}")
        languages, client = able[source]
        named = {"source_lang": source, "target_lang": target} if languages.sources else {}
        return (source, probability), client.keeping(glossary) if glossary else client, named, target

    def _codes(self):
        """The codes of all languages, a tuple."""
        return tuple(dict.fromkeys(code for languages, _ in self._models().values() for code in languages.codes()))


async def finished(request, until, pool, work, *arguments):
    """Calls `work(*arguments, gone)` in a thread of a pool, and awaits its result; see `while_connected`.

    `until` is the `time.monotonic()` at which the client has an error. `gone` is a `threading.Event`, which is set when
    nobody waits for the result any more.
    """
    gone = threading.Event()
    future = asyncio.get_running_loop().run_in_executor(pool, work, *arguments, gone)
    try:
        return await while_connected(request, future, until - time.monotonic())
    finally:
        gone.set()


async def refuse(request, error):
    """Answers an `HTTPException` or a `ServingError`."""
    is_http = isinstance(error, HTTPException)
    message, status = (error.detail, error.status_code) if is_http else (error.message, error.http_status)
    headers = error.headers if is_http else None
    if status == 504:  # The rest of the body may still come.
        headers = {"Connection": "close"}
    # A parameter may have half of a surrogate pair, which UTF-8 cannot write.
    name = "message" if request.url.path.startswith("/v2/") else "error"  # as DeepL does, or LibreTranslate
    return JSONResponse({name: message.encode("utf-8", "replace").decode("utf-8")}, status, headers)


GONE = Response(status_code=499)  # Ends a request whose client has gone.
BROKEN = JSONResponse({"error": "Internal error."}, 500)
EXCEPTION_HANDLERS = {HTTPException: refuse, ServingError: refuse}
EXCEPTION_HANDLERS |= {ClientDisconnect: lambda *_: GONE, Exception: lambda *_: BROKEN}


def _text_of(parameters, name):
    """Returns the text, or for "q" the text or the list of texts, of a parameter."""
    if not (value := parameters.get(name)):
        raise invalid(f"Invalid request: missing {name} parameter")
    if not all(map(is_text, value if isinstance(value, list) and name == "q" else [value])):
        raise invalid(f"Invalid request: {name} parameter is not text")
    return value


def is_text(value):
    """Says whether a value is text that UTF-8 can write."""
    return isinstance(value, str) and value.encode("utf-8", "ignore").decode("utf-8") == value


def _glossary(value):
    """Checks a glossary: in JSON an object, in a form its JSON. Returns a dict, source form -> target form."""
    if isinstance(value, str) and len(value) > 6 * LONGEST_GLOSSARY:  # A character of JSON may be six: \\u00e4.
        raise invalid(TOO_LONG)
    with contextlib.suppress(ValueError, RecursionError):
        value = json.loads(value) if isinstance(value, str) and value else value or {}
    forms = [*value, *value.values()] if isinstance(value, dict) else [None]
    if not all(is_text(form) and form.strip() for form in forms):
        raise invalid('Invalid request: glossary parameter is not an object of terms, such as {"term": "translation"}')
    if sum(map(len, forms)) > LONGEST_GLOSSARY:
        raise invalid(TOO_LONG)
    return value


def _count(value):
    try:
        return max(0, int(value))
    except (TypeError, ValueError, OverflowError):
        raise invalid("Invalid request: alternatives parameter is not a number") from None


def _translated(texts, count, client, languages, target, gone):
    """Translates texts: for each a list of str, the translation and at most `count` others."""
    if not count:
        return [[found.text] for found in client.translate(texts, **languages)]
    hypotheses = [[found.text for found in several] for several in client.alternatives(texts, **languages)]
    return [list(dict.fromkeys([best, *filter(None, others)]))[: 1 + count] for best, *others in hypotheses]


def unchanged(texts, *_):
    """Gives texts back as they are: what translates a text that is in its target language already."""
    return [[text] for text in texts]


def beginning(q):
    """The beginning of a text, or of a list of texts, that tells its language: without tags."""
    text = (q if isinstance(q, str) else " ".join(text[:MOST_DETECTED] for text in q))[:MOST_DETECTED]
    return re.sub(r"<[^<>]*>", " ", text)


def _detected(code, probability):
    return {"confidence": round(100.0 * probability, 1), "language": code}


def _language(code):
    return {"code": code, "name": "Auto Detect" if code == AUTO else name_of(code)}
