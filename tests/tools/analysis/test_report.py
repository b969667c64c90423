import base64
import csv
import dataclasses

import numpy as np
import pytest
from playwright.sync_api import expect

from keras_transformer.layers.embedding import NoPositions
from keras_transformer.tools.analysis.report import NEIGHBOURS, POSITIONS, neighbours, positions, write_report
from keras_transformer.tools.analysis.roles import Relation
from keras_transformer.tools.analysis.survey import Attended, Heads
from keras_transformer.translation.translator import Translator
from tests import reference, tiny
from tests.tools.pages import EVIL, PHONE, data_of


def hand_made():
    """Two heads of each kind in one layer; the second of a kind looks at the last key."""

    def weights(rows, columns):
        return np.stack([np.full((rows, columns), 1 / columns), np.eye(columns)[[-1] * rows]]).astype(np.float32)

    sentences = []
    for source, target in ((["▁one", "▁two", EVIL], ["<s>", "▁eins"]), (["▁a", "\t"], ["<s>", *"▁x ▁y ▁z ▁w".split()])):
        s, t = len(source), len(target)
        of_kinds = {"encoder": weights(s, s), "decoder": weights(t, t), "cross": weights(t, s)}
        sentences.append(Attended(source, target, [*target[1:], "</s>"], of_kinds))
    kinds = ["encoder", "encoder", "decoder", "decoder", "cross", "cross"]
    nothing = np.full(6, np.nan)
    of_heads = {"layers": np.zeros(6, int), "places": np.array([0, 1] * 3), "entropies": np.linspace(0.3, 1.9, 6)}
    of_heads |= {"offsets": np.array([-1, 0, 0, 2, 0, 0]), "offset_shares": np.array([0.93, 0.5, 0.5, 0.5, 0.5, 0.5])}
    of_heads |= {"rare": np.full(6, 0.25), "rare_by_chance": np.full(6, 0.2), "aligned": nothing}
    of_heads |= {"diagonal": np.array([*nothing[:4], 0.97, 0.1])}
    of_heads |= {"importance": np.array([0.5, 0.1, 0.2, 0.3, 0.7, 0.05])}
    relations = {EVIL: Relation(31, np.array([0.75, 0.25]), np.array([0.25, 0.5]), 1, 0.5)}
    return Heads(kinds=kinds, **of_heads, relations=relations, sentences=sentences, pairs=7)


def test_roles_are_given_from_the_shares_of_the_papers_on():
    numbers = {"offsets": [-1, 2, 0, 0, 0, 3], "offset_shares": [0.9, 0.89, 0.3, 0.3, 0.1, 0.95]}
    numbers |= {"rare": [0.1, 0.7, 0.55, 0.1, 0.5, 0.2], "rare_by_chance": [0.2, 0.2, 0.3, 0.3, 0.25, 0.25]}
    numbers |= {"diagonal": [*[np.nan] * 4, 0.9, 0.8], "aligned": [*[np.nan] * 4, 0.5, 0.4]}
    relation = Relation(31, np.array([0.61, 0.2]), np.array([0.1, 0.58]), 1, 0.5)
    numbers = {name: np.array(values) for name, values in numbers.items()}
    found = dataclasses.replace(hand_made(), **numbers, relations={"nsubj": relation})
    of_cross = [["diagonal", "rare words", "alignment"], ["position +3"]]
    assert found.roles == [["position -1", "nsubj to head"], ["rare words"], [], [], *of_cross]
    few = dataclasses.replace(found, relations={"nsubj": relation._replace(pairs=29)})
    assert few.roles[0] == ["position -1"]


@pytest.fixture(scope="module")
def translator():
    return Translator(tiny.transformer(), tiny.tokenizer())


@pytest.fixture(scope="module")
def written(translator, tmp_path_factory):
    directory = tmp_path_factory.mktemp("report")
    curves, lost = [("BLEU", [(0, 31.5), (0.5, 23.0), (1, 0)])], [0.5, -0.25, 0, 0, 11, 0]
    corpus = (["one two", "one"], ["eins zwei", "eins"])
    return write_report(directory, translator, hand_made(), f"runs/{EVIL}", *corpus, lost, curves, "BLEU 31.5")


def test_no_text_of_the_corpus_is_markup_and_the_table_has_a_line_for_each_head(written):
    data = data_of(written.read_text(encoding="utf-8"))
    assert data["title"] == f"runs/{EVIL}" and data["sentences"][0]["source"][2] == EVIL.replace("\u2028", "\\u2028")
    weights = data["sentences"][0]["weights"]  # bytes
    assert list(base64.b64decode(weights["cross"])) == [85] * 6 + [0, 0, 255] * 2
    with open(written.with_name("heads.tsv"), encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    assert [row["name"] for row in rows] == hand_made().names
    first = {"importance": "0.5", "lost": "0.5", "offset": "-1", "offset_share": "0.93", "diagonal": ""}
    assert {name: rows[0][name] for name in first} == first and rows[0]["roles"].startswith("position -1")


def test_the_positions_are_the_sinusoids_of_the_paper_and_there_is_no_picture_of_none(translator, monkeypatch):
    found, expected = positions(translator.model), reference.sinusoids(POSITIONS, translator.model.d_model)
    pixels = np.frombuffer(base64.b64decode(found["values"]), np.uint8).reshape(found["length"], found["width"])
    np.testing.assert_allclose(pixels / 255 * 2 - 1, expected, atol=0.005)
    for distance in (0, 1, 53):
        products = [expected[p] @ expected[p + distance] for p in range(POSITIONS - distance)]
        assert found["products"][distance] == pytest.approx(np.mean(products), abs=1e-3)
    monkeypatch.setattr(translator.model, "position_layer", NoPositions())
    assert positions(translator.model) is None


def test_neighbours_are_the_nearest_by_cosine_the_most_frequent_piece_first(translator):
    (found,) = neighbours(translator, ["one two", "one"], ["eins"])
    ids = tiny.tokenizer().encode(["one two", "one", "eins"]).flat_values.numpy().tolist()
    names = tiny.tokenizer().visible_pieces(np.arange(tiny.VOCABULARY, dtype=np.int32))
    counts = [ids.count(names.index(piece)) for piece, _ in found["pieces"]]
    assert counts == sorted(counts, reverse=True) and len(counts) == len(set(ids)) and sum(counts) == len(ids)
    matrix = reference.weights_of(translator.model)["embedding/matrix"]
    for piece, others in found["pieces"]:
        vector = matrix[names.index(piece)]
        cosines = matrix @ vector / np.linalg.norm(matrix, axis=1) / np.linalg.norm(vector)
        order = [id for id in np.argsort(-cosines) if id > 3 and names[id] != piece][:NEIGHBOURS]
        assert [name for name, _ in others] == [names[id] for id in order]
        np.testing.assert_allclose([cosine for _, cosine in others], cosines[order], atol=6e-4)
    # Two embeddings have neighbours each.
    two = tiny.transformer(target_vocabulary_size=tiny.VOCABULARY)
    source, target = neighbours(Translator(two, tiny.tokenizer()), ["one"], ["eins"])
    assert [found["side"], source["side"], target["side"]] == ["source and target", "source", "target"]
    assert source["pieces"][0][0] != target["pieces"][0][0]


def test_a_reader_sees_every_head_on_a_phone(opened, written):
    opened.goto(written.as_uri())
    expect(opened.get_by_role("heading", level=1)).to_have_text(f"runs/{EVIL}")
    large = opened.locator("#map svg")
    expect(opened.locator("#details")).to_have_text(f"encoder 0.0: position -1, {EVIL} to head")
    expect(large.locator("rect")).to_have_count(9)

    opened.get_by_label("Attention of").select_option("cross")
    opened.get_by_label("Sentence").select_option("1")
    opened.get_by_role("button", name="cross 0.1").first.click()
    expect(opened.locator("#details")).to_have_text("cross 0.1")
    expect(large.locator("rect")).to_have_count(10)
    titles = large.locator("rect").evaluate_all("boxes => boxes.map((box) => box.textContent)")
    assert titles[:2] == ["<s> → ▁x: ▁a 0 %", "<s> → ▁x: \\t 100 %"] and titles[-1] == "▁w → </s>: \\t 100 %"

    opened.locator("#roles .role").nth(4).click()
    expect(opened.locator("#details")).to_have_text("cross 0.0: diagonal")
    opened.get_by_text("All numbers").click()
    cells = opened.locator("#heads tbody tr").first.locator("th, td")
    numbers = ["encoder 0.0", "0.500", "0.50", "0.30", "-1", "93 %", "25 %", "20 %", ""]
    expect(cells).to_have_text([*numbers, f"position -1, {EVIL} to head"])
    syntax = ["31", "+1", "50 %", "encoder 0.0 75 %", "encoder 0.1 50 %"]
    expect(opened.locator("#syntax tbody td")).to_have_text(syntax)
    for shown, count in (("#curves circle", 3), ("#products circle", POSITIONS)):
        expect(opened.locator(shown)).to_have_count(count)
    for piece, count in (("o", NEIGHBOURS), ("no such piece", 0)):
        opened.get_by_label("Piece").fill(piece)
        expect(opened.locator("#nearest li")).to_have_count(count)
    assert opened.evaluate("document.documentElement.scrollWidth") == PHONE["width"]
