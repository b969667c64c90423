import json

import pytest
from keras_transformer.data.cache import make_once

INGREDIENTS = {"corpus": "en to de, 23 bytes", "max_length": 31}
CONTENT = {"ids": b"\x05\x07\x0b", "starts": bytes(17)}


class Maker:
    """Writes CONTENT and counts how often; `before_last` is called before the last file."""

    def __init__(self, before_last=lambda: None):
        self.calls, self.before_last = 0, before_last

    def __call__(self, directory):
        assert directory.is_dir() and list(directory.iterdir()) == []
        self.calls += 1
        for number, (name, content) in enumerate(CONTENT.items(), start=1):
            if number == len(CONTENT):
                self.before_last()
            (directory / name).write_bytes(content)


@pytest.fixture
def directory(tmp_path):
    return tmp_path / "tokens" / "train"


@pytest.fixture
def made(directory):
    """The directory, filled."""
    make_once(directory, INGREDIENTS, Maker())
    return directory


def calls(directory, ingredients=INGREDIENTS):
    """How often a start with these ingredients makes the directory; it is whole afterwards."""
    make = Maker()
    make_once(directory, ingredients, make)
    assert {name: (directory / name).read_bytes() for name in CONTENT} == CONTENT
    assert [path.name for path in directory.parent.iterdir()] == [directory.name]
    return make.calls


def test_what_is_there_is_not_made_again(made, capsys):
    assert [calls(made), calls(made)] == [0, 0]
    assert capsys.readouterr().out == ""


def test_the_first_time_says_nothing(directory, capsys):
    assert calls(directory) == 1
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"corpus": "en to de, 29 bytes"}, "made from another corpus: made anew"),
        ({"corpus": "de to en, 23 bytes", "max_length": 37}, "made from another corpus and max_length: made anew"),
        ({"layout": 2}, "made from another layout: made anew"),
    ],
)
def test_other_ingredients_are_named_and_make_it_anew_once(made, capsys, changed, said):
    assert [calls(made, INGREDIENTS | changed) for _ in range(2)] == [1, 0]
    (line,) = capsys.readouterr().out.splitlines()
    assert line.strip() == f"{made} was {said}"


DAMAGE = {
    "a file cut short": lambda path: (path / "starts").write_bytes(bytes(16)),
    "one other bit": lambda path: (path / "ids").write_bytes(b"\x05\x07\x0a"),
    "two files changed for each other": lambda path: (path / "ids").rename(path / "starts"),
    "a missing file": lambda path: (path / "ids").unlink(),
    "no index": lambda path: (path / "index.json").unlink(),
    "half an index": lambda path: (path / "index.json").write_text('{"ingredients"'),
    "an index of something else": lambda path: (path / "index.json").write_text("[17]"),
    "an index without checksums": lambda path: (path / "index.json").write_text(json.dumps({"ingredients": {}})),
    "an empty directory": lambda path: [file.unlink() for file in path.iterdir()],
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE.keys())
def test_a_damaged_one_is_made_anew_with_a_line_that_says_so(made, capsys, damage):
    damage(made)
    assert [calls(made) for _ in range(2)] == [1, 0]
    (line,) = capsys.readouterr().out.splitlines()
    assert str(made) in line and line.endswith(": made anew")


def test_files_that_others_leave_there_do_no_harm(made):
    (made / ".DS_Store").write_bytes(b"13")
    assert calls(made) == 0


def interrupted():
    raise KeyboardInterrupt


def full_disk():
    raise OSError(28, "No space left on device")


@pytest.mark.parametrize("stop", [interrupted, full_disk])
def test_an_interruption_leaves_nothing_that_is_taken_for_whole(directory, stop):
    with pytest.raises((KeyboardInterrupt, OSError)):
        make_once(directory, INGREDIENTS, Maker(before_last=stop))
    assert list(directory.parent.iterdir()) == []
    assert calls(directory) == 1


def test_an_interruption_while_making_anew_leaves_the_old_one_for_its_own_ingredients(made):
    with pytest.raises(KeyboardInterrupt):
        make_once(made, INGREDIENTS | {"max_length": 37}, Maker(before_last=interrupted))
    assert calls(made) == 0


def test_what_a_killed_start_has_left_is_cleared_away(directory):
    unfinished = directory.with_name("train.unfinished")
    unfinished.mkdir(parents=True)
    (unfinished / "ids").write_bytes(b"half")
    assert calls(directory) == 1
