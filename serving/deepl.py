"""DeepL's API, which plug-ins of editors and of translation tools speak, beside LibreTranslate's API."""

import asyncio
import re
import time

from starlette.responses import JSONResponse

from serving.codes import plain
from serving.errors import invalid
from serving.http_server import while_connected
from serving.languages import name_of
from serving.libretranslate import (
    AUTO,
    DOCUMENTS,
    LONGEST_ANSWER,
    TEXTS_AT_ONCE,
    beginning,
    finished,
    is_text,
    unchanged,
)
from serving.parameters import read_parameters

SCHEME = re.compile(r"DeepL-Auth-Key (\S+)", re.IGNORECASE)
LISTS = ("text", "ignore_tags")  # Parameters with several values.
REFUSED = ("glossary_id", "glossary_ids", "style_id", "translation_memory_id", "custom_instructions")
TAGGED = ("html", "xml")  # Values of `tag_handling`.
TAG = re.compile(r"[^\s<>/=&'\"]+")
NO_LIMIT = 10**12  # Characters: what DeepL tells its customers without a limit.
NO_NAMES = "Value for 'ignore_tags' not supported: it must be names of tags"
KEPT = ' translate="no"'  # Marks what must not be translated, in HTML.


class DeepL:
    """The answers of DeepL's API, version 2, by what translates for a `LibreTranslate`.

    Languages are detected text by text where `source_lang` is absent. `split_sentences`, `context` and other
    parameters that only advise DeepL's own models have no effect. A parameter that would change the meaning of a
    request, such as `glossary_id`, is refused.
    """

    def __init__(self, api):
        self._api = api
        self._characters = 0  # Of the texts since the start.

    def add_to(self, app):
        """Adds the paths to a `Starlette` app."""
        app.add_route("/v2/translate", self.translate, methods=["POST"])
        for path in (self.languages, self.usage):
            app.add_route(f"/v2/{path.__name__}", path, methods=["GET", "POST"])

    async def translate(self, request):
        """Translates one or several texts, plain or with tags."""
        asked = await self._read(request)
        texts, how = _texts_of(asked), _options_of(asked)
        if asked.get("tag_handling") and "html" not in self._api.formats:
            raise invalid(f"Value for 'tag_handling' not supported: {DOCUMENTS}")
        work, pool = self._api.formats["html" if asked.get("tag_handling") else "text"]
        sources, translations, until = {}, [{}] * len(texts), time.monotonic() + LONGEST_ANSWER
        for number, text in enumerate(texts):
            if number == 0 or plain(how["source"]) == AUTO:
                found = asyncio.ensure_future(self._api.direction(how, beginning(text)))
                (source, _), *direction = await while_connected(request, found, until - time.monotonic())
            sources.setdefault(source, (direction, []))[1].append(number)
        ignored = _names_of(asked.get("ignore_tags") or []) if asked.get("tag_handling") else None
        for source, (direction, numbers) in sources.items():
            by = (None, unchanged) if source == direction[-1] else (pool, work)
            for start in range(0, len(numbers), TEXTS_AT_ONCE):
                some = numbers[start : start + TEXTS_AT_ONCE]
                part = [_kept(texts[number], ignored) for number in some]
                found = await finished(request, until, *by, part, 0, *direction)
                for number, (best, *_) in zip(some, found, strict=True):
                    translations[number] = {"detected_source_language": source.upper(), "text": _freed(best, ignored)}
        self._characters += sum(map(len, texts))
        if str(asked.get("show_billed_characters", "")).lower() in ("1", "true"):
            for each, text in zip(translations, texts, strict=True):
                each["billed_characters"] = len(text)
        return JSONResponse({"translations": translations})

    async def languages(self, request):
        """Lists the languages of texts, or with type=target those of translations."""
        kind = (await self._read(request)).get("type", "source")
        if kind not in ("source", "target"):
            raise invalid("Value for 'type' not supported: use source or target")
        found = self._api.languages()
        targets = {target for each in found for target in each["targets"] if target != each["code"]}
        sources = {each["code"] for each in found if {*each["targets"]} - {each["code"]}}
        codes = sorted(targets if kind == "target" else sources)
        formality = {"supports_formality": False} if kind == "target" else {}
        return JSONResponse([{"language": code.upper(), "name": name_of(code), **formality} for code in codes])

    async def usage(self, request):
        """Tells how many characters have been translated since the start. There is no limit."""
        await self._read(request)
        return JSONResponse({"character_count": self._characters, "character_limit": NO_LIMIT})

    async def _read(self, request):
        """Reads the parameters of a request that may pass."""
        asked = await read_parameters(request, LISTS)
        key = SCHEME.fullmatch(request.headers.get("authorization", "").strip())
        self._api.check_key({"api_key": key[1] if key else asked.get("auth_key")})
        return asked


def app_of(api, origins):
    """Makes the `Starlette` app of a `LibreTranslate`, with DeepL's API beside it; see `LibreTranslate.app`."""
    app = api.app(origins)
    DeepL(api).add_to(app)
    return app


def _texts_of(asked):
    """Returns the texts of a request."""
    texts = asked.get("text")
    texts = [texts] if isinstance(texts, str) else texts
    if not texts:
        raise invalid("Parameter 'text' not specified.")
    if not isinstance(texts, list) or not all(map(is_text, texts)):
        raise invalid("Value for 'text' not supported: it must be a list of texts")
    return texts


def _options_of(asked):
    """Returns the languages of a request as `LibreTranslate.direction` reads them. Refuses what has no effect here."""
    if not asked.get("target_lang"):
        raise invalid("Parameter 'target_lang' not specified.")
    for name in REFUSED:
        if asked.get(name):
            raise invalid(f"Value for '{name}' not supported: this server has none; leave it out")
    if str(asked.get("formality") or "default") not in ("default", "prefer_more", "prefer_less"):
        raise invalid("'formality' is not supported for given 'target_lang'.")
    if (tags := asked.get("tag_handling")) and tags not in TAGGED:
        raise invalid(f"Value for 'tag_handling' not supported: use {' or '.join(TAGGED)}")
    return {"source": asked.get("source_lang") or "auto", "target": asked["target_lang"]}


def _names_of(names):
    """Returns the names of tags, a pattern, or None for none. A value may name several, with commas between them."""
    names = [names] if isinstance(names, str) else names
    if not isinstance(names, list) or not all(isinstance(each, str) for each in names):
        raise invalid(NO_NAMES)
    found = [name.strip() for each in names for name in each.split(",") if name.strip()]
    if not all(map(TAG.fullmatch, found)):
        raise invalid(NO_NAMES)
    return re.compile(rf"<({'|'.join(map(re.escape, found))})(?=[\s/>])") if found else None


def _kept(text, ignored):
    """Marks the tags whose content must stay. The mark is HTML's own."""
    return ignored.sub(rf"<\1{KEPT}", text) if ignored else text


def _freed(text, ignored):
    """Takes the marks of `_kept` out again."""
    return re.sub(f"({ignored.pattern}){KEPT}", r"\1", text) if ignored else text
