"""Every version that a page or a comment names is one that a file asks for, or one that is installed here."""

import re
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *(ROOT / "serving").rglob("*.md"), *(ROOT / "docs").rglob("*.md")]
KIT = [path for path in (ROOT / "serving").rglob("*.y*ml") if path.parent.name != "dashboards"]
CODE = [path for folder in ("keras_transformer", "serving") for path in (ROOT / folder).rglob("*.py")]
REQUIREMENTS = [ROOT / name for name in ("requirements.txt", "requirements-dev.txt", "pyproject.toml")]
MEASURED = ROOT / "docs" / "figures"  # names the versions of the day of a measurement, and those of other programs
NUMBER = r"v?(\d+(?:\.\d+)+)"
IMAGES = {"tensorflow serving": "tensorflow/serving", "nginx": "nginxinc/nginx-unprivileged"}
IMAGES |= {"prometheus": "prom/prometheus", "grafana": "grafana/grafana"}


def text_of(paths):
    return "\n".join(path.read_text(encoding="utf-8") for path in paths)


def parts_of(number):
    return tuple(map(int, number.split(".")))


def bounds():
    """The name of each package that is required -> the versions in its bounds."""
    found = {}
    for name, conditions in re.findall(r"^ *\"?([\w-]+)([<>=][^;\"#\n]*)", text_of(REQUIREMENTS), re.MULTILINE):
        found.setdefault(name.lower(), set()).update(re.findall(r"\d[\d.]*", conditions))
    return found


@pytest.mark.parametrize("product", IMAGES)
def test_an_image_is_pinned_once_and_pages_name_its_version(product):
    pins = set(re.findall(rf"{IMAGES[product]}:(?:\$\{{TF_SERVING_TAG:-)?{NUMBER}", text_of(KIT)))
    assert len(pins) == 1 and f"{IMAGES[product]}:latest" not in text_of(KIT)
    assert set(re.findall(rf"\b{product} {NUMBER}", text_of([*PAGES, *KIT]), re.IGNORECASE)) == pins


@pytest.mark.skipif(sys.version_info < (3, 11), reason="Python 3.10 has Keras 3.12")
def test_a_package_has_been_tested_in_the_versions_that_pages_and_comments_name():
    lowest = {name: min(map(parts_of, numbers)) for name, numbers in bounds().items()}
    lowest["tensorflow"] = (2, 20)  # that of TensorFlow Serving, which loads exports
    text = text_of([*CODE, *(path for path in PAGES if path.parent != MEASURED), ROOT / "serving" / "Dockerfile"])
    names = "|".join(name.replace("-", "[- ]") for name in lowest)
    mentions = re.findall(rf"\b({names})(?: |==){NUMBER}(?: (?:to|and) {NUMBER})?", text, re.IGNORECASE)
    assert {"tensorflow", "keras", "apache beam"} <= {name.lower() for name, *_ in mentions}
    for name, *numbers in mentions:
        package = name.lower().replace(" ", "-")
        newest = parts_of(re.match(r"[\d.]*\d", version(package))[0])
        assert all(lowest[package] <= parts_of(n) <= newest for n in filter(None, numbers)), (name, numbers)
