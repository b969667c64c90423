"""The APIs of LibreTranslate and DeepL before any server of TensorFlow Serving's API. Needs no TensorFlow."""

import gc
import logging
import os
import re
import sys
from pathlib import Path

from serving.client import Client, add_protection_arguments
from serving.deepl import app_of
from serving.errors import Parser
from serving.http_server import HttpServer, address_of, stop_on_signals
from serving.keys import read_keys
from serving.languages import Languages, newest_languages, written
from serving.libretranslate import THREADS, LibreTranslate
from serving.observing import Observed
from serving.observing import logger as access

GRPC = "grpc://"
SECONDS_OF_HEALTH = 2.0  # Most time for the backend to say that it has the model.
# As browsers write it: in small letters, without a path, and without the usual port.
ORIGIN = re.compile(
    r"\*|(?!http:.*:80$|https:.*:443$)[a-z][a-z0-9+.-]*://(?:[a-z0-9._-]+|\[[0-9a-f:.]+\])(?::[0-9]+)?", re.ASCII
)

DESCRIPTION = """Offer {what}, and translate with a server of TensorFlow Serving's API, stock or local.

  {program} --backend grpc://localhost:8500 --source_lang en --target_lang de
  {program} --backend grpc://localhost:8500 --model_base_path exports/mine
      reads the languages from the export.json of the newest version"""


def parse_arguments(arguments=None, program="python -m serving.gateway", what="the APIs of LibreTranslate and DeepL"):
    """Parses the flags of a program that offers `what`."""
    parser = Parser(prog=program, description=DESCRIPTION.format(program=program, what=what))
    parser.add_argument("--backend", required=True, help="server to ask: grpc://HOST:PORT or http://HOST:PORT")
    parser.add_argument("--model_name", default="translator", help="model to ask (default: %(default)s)")
    parser.add_argument("--label", help="label of the version to ask, such as stable (default: the newest version)")
    parser.add_argument("--source_lang", help="language of the texts, such as en")
    parser.add_argument("--target_lang", help="language of the translations, such as de")
    parser.add_argument(
        "--model_base_path", type=Path, help="directory of exported versions, or of one, in place of both"
    )
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: %(default)s)")
    parser.add_argument("--port", type=int, default=5000, help="port, LibreTranslate's by default (default: 5000)")
    parser.add_argument("--timeout", type=float, default=30.0, help="most seconds for a request (default: 30)")
    most = "most texts in a request, not above the server's `max_batch_size` (default: 32)"
    parser.add_argument("--max_batch_size", type=int, default=32, help=most)
    cors = "origins of the sites whose pages may ask, such as https://a.org (default: *, all sites)"
    parser.add_argument("--cors", nargs="*", default=["*"], metavar="ORIGIN", help=f"{cors}; --cors alone allows none")
    keys = "file of keys, each with its requests in a minute: then a request needs one of them, as `api_key`"
    parser.add_argument("--api_keys", metavar="FILE", help=keys)
    add_protection_arguments(parser)
    found = parser.parse_args(arguments)
    if not found.backend.startswith((GRPC, "http://", "https://")):
        parser.error(f"--backend must be grpc://HOST:PORT or http://HOST:PORT. Received: {found.backend}")
    if not 0 <= found.port <= 65535:
        parser.error(f"--port must be between 0 and 65535. Received: {found.port}")
    for origin in found.cors:
        if not ORIGIN.fullmatch(origin):
            parser.error(f"--cors must be origins as browsers write them, such as https://a.org. Received: {origin}")
    given = [found.source_lang, found.target_lang, found.model_base_path]
    if [*map(bool, given)] not in ([True, True, False], [False, False, True]):
        parser.error("give either both --source_lang and --target_lang, or --model_base_path")
    return found


def connected(arguments):
    """Returns dict, name of the model -> (`Languages`, `Client`), of the flags. Raises ValueError or OSError."""
    if arguments.model_base_path:
        languages = newest_languages(arguments.model_base_path)
    else:
        languages = Languages(written(arguments.source_lang), written(arguments.target_lang))
    target = arguments.backend.removeprefix(GRPC)
    how = {"url" if target == arguments.backend else "grpc": target}
    how |= {name: getattr(arguments, name) for name in ("label", "timeout", "glossary", "protect", "max_batch_size")}
    client = Client(model=arguments.model_name, in_flight=THREADS, **how)
    return {arguments.model_name: (languages, client)}


def main(arguments=None, api=LibreTranslate):
    """Serves until SIGTERM or Ctrl-C, and then answers the open requests. A mistake ends the program with one line."""
    sys.setswitchinterval(0.001)  # Seconds, after which a thread that works on a long body lets another one run.
    arguments, stopping = arguments or parse_arguments(), stop_on_signals()
    try:
        models = connected(arguments)
        keys = read_keys(arguments.api_keys) if arguments.api_keys else None
        ((languages, client),) = models.values()
        served = api(lambda: models, keys=keys, is_ready=lambda: client.is_ready(SECONDS_OF_HEALTH))
        app = app_of(served, arguments.cors)
        app = Observed(app, [route.path.removesuffix("/{name}") for route in app.routes])
        logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(message)s")
        access.setLevel(logging.INFO)
        server = HttpServer(app, arguments.host, arguments.port, drain_seconds=30)
    except (ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
    others = sum(map(len, languages.directions().values())) - 1
    what = f"{languages.source} to {languages.target}" + f" and {others} other directions" * bool(others)
    print(f"{what} on http://{address_of(arguments.host, server.port)}/translate", file=sys.stderr, flush=True)
    gc.collect()
    gc.freeze()  # No collection visits the objects of imported modules again.
    stopping.wait()
    server.stop()
    served.close()
    os._exit(0)  # Without waiting for the clients' threads.


if __name__ == "__main__":
    main()
