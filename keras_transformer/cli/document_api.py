"""LibreTranslate's API with documents: texts in HTML, and files that come up translated and go down once."""

import asyncio
import contextlib
import io
import lzma
import secrets
import time
import zipfile
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

import regex
from grpc import StatusCode
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response

from keras_transformer.cli.gateway import ClientTranslator
from keras_transformer.errors import UserError
from keras_transformer.tools.documents import apart
from keras_transformer.tools.documents.declared import LANGUAGE, read_text
from keras_transformer.tools.documents.files import FORMATS, check_format, format_of
from keras_transformer.words import LETTERS_AND_DIGITS
from serving.errors import ServingError, invalid
from serving.http_server import read_body
from serving.libretranslate import LONGEST_ANSWER, LibreTranslate, beginning, finished
from serving.parameters import content_type, form_of, query_of

MOST_BYTES = 8 * 2**20  # of an uploaded file
MOST_KEPT_BYTES = 2**28  # of all files that wait for their download
MOST_READ = 2**16  # bytes or characters of a document that tell its language
SECONDS_KEPT = 600
LONGEST_NAME = 100  # characters
BUSY = "there are too many documents now: try again later"


class DocumentApi(LibreTranslate):
    """The answers of the API. A translated file stays in memory until its download, `SECONDS_KEPT` at most."""

    def __init__(self, models, **options):
        super().__init__(models, **options)
        self._pool = ThreadPoolExecutor(apart.MOST_DOCUMENTS + 1, "documents")  # the last one finds no place
        self.formats["html"] = (_translated_pages, self._pool)
        self._kept = {}  # key -> `_Kept`, the oldest first

    def app(self, origins):
        app = super().app(origins)
        app.add_route("/download_file/{name}", self.download_file)
        return app

    def close(self):
        apart.stop()

    def settings(self):
        return {**super().settings(), "filesTranslation": True, "supportedFilesFormat": endings()}

    async def translate_file(self, request):
        """Translates an uploaded file of a format of `FORMATS`, and says where its translation is."""
        until = time.monotonic() + LONGEST_ANSWER
        body = await read_body(request, MOST_BYTES, timeout_s=60.0)
        kind, _ = content_type(request)
        asked = await form_of(request, body, most_files=1) if kind == "multipart/form-data" else {}
        self.check_key({**query_of(request), **asked})
        if not isinstance(file := asked.get("file"), UploadFile):
            raise invalid("Invalid request: missing file parameter")
        name, data = file.filename, await file.read()
        await file.close()
        del body  # The document may wait.
        path, text = Path(name), await asyncio.to_thread(_text_of, data, name)
        _, *how = await self.direction(asked, beginning(text))
        if not data:
            raise invalid("Invalid request: empty file")
        if path.suffix.lower() not in endings():
            raise invalid(f"Invalid request: file format not supported, only {' '.join(endings())}")
        if how[0]:  # else the file is in this language already
            data = await finished(request, until, self._pool, _translated_file, data, format_of(name), *how)
        stem = regex.sub(rf"[^{LETTERS_AND_DIGITS}._-]+", "_", path.stem)[:LONGEST_NAME]
        name = f"{stem}_{how[-1]}{path.suffix}"
        address = f"{request.base_url}download_file/{self._keep(name, data)}.{quote(name)}"
        return JSONResponse({"translatedFileUrl": address})

    async def download_file(self, request):
        """Gives a translated file away."""
        kept = self._kept.pop(request.path_params["name"].partition(".")[0], None)
        if kept is None or kept.until < time.monotonic():
            message = f"Invalid filename: a file can be downloaded once, within {SECONDS_KEPT // 60} minutes"
            raise HTTPException(404, message)
        headers = {
            "Content-Disposition": f"attachment; filename*=UTF-8''{quote(kept.name)}",
            "Cache-Control": "no-store",
        }
        return Response(kept.data, headers=headers, media_type="application/octet-stream")

    def _keep(self, name, data):
        """Keeps a file, and drops the oldest ones if all together are too large. Returns the key of the file."""
        now = time.monotonic()
        self._kept = {key: kept for key, kept in self._kept.items() if kept.until >= now}
        while self._kept and sum(len(kept.data) for kept in self._kept.values()) + len(data) > MOST_KEPT_BYTES:
            del self._kept[next(iter(self._kept))]
        key = secrets.token_urlsafe(16)
        self._kept[key] = _Kept(name, data, now + SECONDS_KEPT)
        return key


def _text_of(data, name):
    """The beginning of a document without tags, which tells its language; empty for one that cannot be read."""
    text, errors = "", (UserError, zipfile.BadZipFile, zlib.error, lzma.LZMAError, KeyError, RuntimeError, OSError)
    with contextlib.suppress(*errors, EOFError):
        if format_of(name) == "docx":
            with zipfile.ZipFile(io.BytesIO(data)) as archive, archive.open("word/document.xml") as part:
                text = part.read(MOST_READ).decode("utf-8", "replace")
        else:
            text = read_text(data, format_of(name), name)[0][:MOST_READ]
    return regex.sub(r"(?is)<(script|style)\b.*?(?:</\1\s*>|\Z)|<[^<>]*>", " ", text)


class _Kept(NamedTuple):
    """A translated file that waits for its download, until a `time.monotonic()`."""

    name: str
    data: bytes
    until: float


def endings():
    """The endings of the files that are translated: those of all formats whose packages are installed."""
    found = []
    for name, format in FORMATS.items():
        with contextlib.suppress(UserError):
            check_format(name)
            found += format.endings
    return found


def _translated_pages(pages, count, client, languages, target, gone):
    """Translates texts in HTML: a list of one str for each, as `count` is 0."""
    with _refusals():
        found = apart.translate_pages_apart(ClientTranslator(client, languages), pages, _declared(target), gone)
        return [[page] for page in found]


def _translated_file(data, format, client, languages, target, gone):
    with _refusals():
        return apart.translate_file_apart(ClientTranslator(client, languages), data, format, _declared(target), gone)


@contextlib.contextmanager
def _refusals():
    """Raises a user's mistake as one of a request."""
    try:
        yield
    except UserError as error:
        raise invalid(str(error)) from None
    except apart.Busy:
        raise ServingError(StatusCode.UNAVAILABLE, BUSY) from None


def _declared(target):
    """The language that a translation declares; None for a code that is none of BCP 47."""
    return target if LANGUAGE.fullmatch(target) else None
