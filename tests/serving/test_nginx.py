"""The page and the APIs behind real nginx with the kit's own nginx.conf."""

import shutil
import subprocess
import urllib.request
from pathlib import Path

import pytest
from libretranslatepy import LibreTranslateAPI

from keras_transformer.cli.document_api import DocumentApi
from serving.rest import PAGE
from tests.cli.test_gateway import post, upload
from tests.serving import toy
from tests.serving.live import HOST, accepts, ask, both, free_port, wait_for
from tests.serving.test_libretranslate import gateway_before

NGINX = shutil.which("nginx")
CONFIGURATION = Path(__file__).parents[2] / "serving" / "config" / "nginx.conf"
MAIN = """
daemon off;
pid {directory}/nginx.pid;
error_log {directory}/error.log;
events {{}}
http {{
  include /etc/nginx/mime.types;
  access_log off;
  {temporary}
{server}}}
"""
KINDS = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")

pytestmark = [pytest.mark.slow, pytest.mark.skipif(NGINX is None, reason="no nginx here: apt-get install nginx-light")]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The port of nginx, with the kit's nginx.conf, before the local server and the gateway."""
    directory = tmp_path_factory.mktemp("nginx")
    toy.write(directory / "toy", 3)
    (directory / "srv").mkdir(mode=0o755)
    directory.chmod(0o755)
    port, flags = free_port(), ("--source_lang=en", "--target_lang=de")
    with both({"translator": directory / "toy"}) as server:
        with gateway_before(server.address, *flags, api=DocumentApi) as gateway:
            configuration = CONFIGURATION.read_text(encoding="utf-8")
            for old, new in {
                "listen 8080": f"listen {HOST}:{port}",
                "/srv/page": str(PAGE),
                "tensorflow-serving:8501": f"{HOST}:{server.port}",
                "gateway:5000": f"{HOST}:{gateway}",
            }.items():
                assert configuration.count(old) == 1, old
                configuration = configuration.replace(old, new)
            temporary = "\n  ".join(f"{kind}_temp_path {directory}/{kind};" for kind in KINDS)
            path = directory / "nginx.conf"  # inside the frame that the image has around it
            path.write_text(MAIN.format(directory=directory, temporary=temporary, server=configuration))
            process = subprocess.Popen([NGINX, "-c", path, "-g", "user root;"], stderr=subprocess.PIPE)
            wait_for(lambda: accepts(port) or process.poll() is not None)
            yield port
            process.terminate()
            process.communicate(timeout=30)


def test_a_program_translates(site):
    client = LibreTranslateAPI(f"http://{HOST}:{site}")
    assert client.translate("süß", "en", "de") == toy.translation("süß", 3).decode()
    assert [language["code"] for language in client.languages()] == ["en", "de"]
    assert client.detect("The dog sleeps.")[0]["language"] == "en"
    for path in ("/health", "/frontend/settings", "/v1/models/translator", "/page/models"):
        assert ask(site, "GET", path)[0] == 200


def test_a_page_and_a_file_are_translated_and_the_address_of_the_file_is_one_for_its_reader(site):
    word = toy.translation("süß", 3).decode()
    assert post(site, {"q": "<p>süß</p>"}) == (200, {"translatedText": f"<p>{word}</p>"})
    page = f"<p>süß</p><!-- {' ' * 2**21} -->"
    address = upload(site, "long.html", page.encode())[1]["translatedFileUrl"]
    assert address.startswith(f"http://{HOST}:{site}/download_file/")
    with urllib.request.urlopen(address) as reply:
        assert reply.read().decode() == page.replace("süß", word)
    behind_tls = {"Host": "translate.example", "X-Forwarded-Proto": "https"}
    address = upload(site, "short.txt", "süß".encode(), headers=behind_tls)[1]["translatedFileUrl"]
    assert address.startswith("https://translate.example/download_file/")


def test_what_is_too_long_or_elsewhere_is_refused(site):
    assert ask(site, "POST", "/translate", bytes(2**20 + 1))[::2] == (413, {"error": "The body is too long."})
    assert ask(site, "POST", "/translate_file", bytes(9 * 2**20 + 1))[0] == 413
    assert ask(site, "GET", "/config/nginx.conf")[0] == 404 == ask(site, "GET", "/translate/x")[0]
