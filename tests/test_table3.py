"""Every row of Table 3 has a file of settings: its sizes are the paper's, and every kind of them trains."""

import re
from pathlib import Path
from types import SimpleNamespace

import pytest
import tensorflow_datasets as tfds

from keras_transformer.cli.train import parse_training
from keras_transformer.config import Config, read_settings
from keras_transformer.data.pipeline import dealt, training_batches
from keras_transformer.tools.planning.dry_run import rehearse
from keras_transformer.training.preparation import prepare
from keras_transformer.training.run_directory import RunDirectory
from keras_transformer.training.train import outline
from tests import tiny

DOCS = Path(__file__).parents[1] / "docs"

# What the paper lists for a row: N, d_model, d_ff, h, d_k, d_v, P_drop, eps_ls, thousands of updates, millions of
# parameters. The rows that list no parameters have as many as base.
BASE = {"N": 6, "d_model": 512, "d_ff": 2048, "h": 8, "d_k": 64, "d_v": 64, "P": 0.1, "eps": 0.1, "K": 100, "M": 65}
PAPER = {
    "base": {},
    "a_h1": {"h": 1, "d_k": 512, "d_v": 512},
    "a_h4": {"h": 4, "d_k": 128, "d_v": 128},
    "a_h16": {"h": 16, "d_k": 32, "d_v": 32},
    "a_h32": {"h": 32, "d_k": 16, "d_v": 16},
    "b_dk16": {"d_k": 16, "M": 58},
    "b_dk32": {"d_k": 32, "M": 60},
    "c_n2": {"N": 2, "M": 36},
    "c_n4": {"N": 4, "M": 50},
    "c_n8": {"N": 8, "M": 80},
    "c_d256": {"d_model": 256, "d_k": 32, "d_v": 32, "M": 28},
    "c_d1024": {"d_model": 1024, "d_k": 128, "d_v": 128, "M": 168},
    "c_ff1024": {"d_ff": 1024, "M": 53},
    "c_ff4096": {"d_ff": 4096, "M": 90},
    "d_drop00": {"P": 0.0},
    "d_drop02": {"P": 0.2},
    "d_eps00": {"eps": 0.0},
    "d_eps02": {"eps": 0.2},
    "e_learned": {},
    "big": {"d_model": 1024, "d_ff": 4096, "h": 16, "P": 0.3, "K": 300, "M": 213},
}
ROWS = pytest.mark.parametrize("row", PAPER)
BUILT_ROWS = ["c_n2", *(pytest.param(row, marks=pytest.mark.slow) for row in PAPER if row != "c_n2")]


def settings_of(row):
    return read_settings(DOCS / "table3" / f"{row}.yaml")


def test_every_row_has_a_file_and_every_file_a_row():
    assert {path.stem for path in (DOCS / "table3").iterdir()} == PAPER.keys()


@ROWS
def test_a_file_has_what_the_paper_lists(row):
    config, listed = Config(**settings_of(row)), {**BASE, **PAPER[row]}
    d_key = config.d_key or config.d_model // config.num_heads
    found = {"N": config.num_layers, "d_model": config.d_model, "d_ff": config.d_ff, "h": config.num_heads}
    found |= {"d_k": d_key, "d_v": config.d_value or d_key, "P": config.dropout_rate, "eps": config.label_smoothing}
    assert {**found, "K": config.max_steps // 1000, "M": listed["M"]} == listed
    assert config.positions == ("learned" if row == "e_learned" else "sinusoidal")
    assert config.num_decoder_layers is config.num_key_value_heads is None and config.model_dir.endswith(row)


@ROWS
def test_files_share_all_settings_but_those_of_their_row(row):
    shape = {"preset", "model_dir", "num_layers", "d_model", "d_ff", "num_heads", "d_key", "d_value", "positions"}
    shape |= {"dropout_rate", "label_smoothing", "max_steps", "epochs", "validate_every"}
    base, config = (vars(Config(**settings_of(name))) for name in ("base", row))
    assert {name for name in base if base[name] != config[name]} <= shape


def by_hand(row):
    """The number of parameters with 37,000 pieces, from the equations of the paper."""
    paper = {**BASE, **PAPER[row]}
    d, f, heads, keys, values = (paper[name] for name in ("d_model", "d_ff", "h", "d_k", "d_v"))
    attention = d * heads * keys + d * heads * keys + d * heads * values + heads * values * d
    feed_forward, norm = d * f + f + f * d + d, d + d
    encoder, decoder = attention + feed_forward + 2 * norm, 2 * attention + feed_forward + 3 * norm
    return 37_000 * d + paper["N"] * (encoder + decoder) + (257 * d if row == "e_learned" else 0)


@pytest.mark.parametrize("row", BUILT_ROWS)
def test_parameters_are_those_of_the_paper_as_far_as_it_tells_them(row):
    tokenizer = SimpleNamespace(vocabulary_size=37_000)
    data = SimpleNamespace(source_tokenizer=tokenizer, target_tokenizer=tokenizer)
    found = outline(Config(**settings_of(row)), data).count_params()
    assert found == by_hand(row)
    assert found / 1e6 == pytest.approx({**BASE, **PAPER[row]}["M"], rel=0.07)


def test_the_page_has_every_row_with_both_numbers():
    lines = (DOCS / "table3.md").read_text(encoding="utf-8").splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if re.match(r"\|.*\.yaml", line)]
    found = {re.search(r"table3/(\w+)\.yaml", row[1])[1]: (int(row[2]), float(row[3])) for row in cells}
    expected = {row: ({**BASE, **PAPER[row]}["M"], round(by_hand(row) / 1e6, 1)) for row in PAPER}
    assert found == expected


def eighth(row, corpus, model_dir):
    """The settings of a row with all widths divided by eight and its layers by four, on a tiny corpus."""
    settings = settings_of(row)
    config = Config(**settings)
    names = ["d_model", "d_ff", *(name for name in ("d_key", "d_value") if name in settings)]
    widths = {name: getattr(config, name) // 8 for name in names}
    kept = {name: settings[name] for name in settings if name not in ("dataset", "model_dir", "epochs")}
    shape = {"num_heads": config.num_heads, "num_layers": config.num_layers // 4}
    quick = {"batch_tokens": 97, "warmup_steps": 5, "peak_learning_rate": 0.003, "strategy": "one_device"}
    kept = {name: value for name, value in kept.items() if not name.endswith("_lang")}
    return tiny.config(corpus, model_dir, **{**kept, **shape, **widths, **quick})


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """(corpus, `Data`): the corpus is tokenised once for all rows."""
    directory = tmp_path_factory.mktemp("rows")
    corpus = tiny.write_corpus(directory / "corpus")
    return corpus, prepare(tiny.config(corpus, directory / "run"), RunDirectory(directory / "run"))


# A row for each way in which rows differ: in the width or the number of heads, in depth, width or positions.
DIFFERENT = ["a_h1", "a_h32", "c_n8", "c_d1024", "c_ff4096", "d_drop00", "d_eps02", "e_learned", "big"]
SLOW = [pytest.param(row, marks=pytest.mark.slow) for row in DIFFERENT]


@pytest.mark.parametrize("row", ["b_dk16", *SLOW])
def test_every_kind_of_row_learns_in_ten_updates(row, prepared, tmp_path):
    corpus, data = prepared
    config = eighth(row, corpus, tmp_path / "run")
    trainer = tiny.build_trainer(config, data)
    trainer.run_eagerly = True  # ten updates take less time than a graph
    batches = dealt(training_batches(data.train, config.batch_tokens, config.seed), trainer.distribute_strategy)
    losses = trainer.fit(batches, epochs=2, steps_per_epoch=5, shuffle=False, verbose=0).history["loss"]
    assert losses[1] < losses[0]


class NewsTranslate(tfds.core.GeneratorBasedBuilder):
    """A corpus in the layout of WMT 2014 in TFDS: de-en, with train, validation and test."""

    VERSION = tfds.core.Version("1.0.0")
    BUILDER_CONFIGS = [tfds.core.BuilderConfig(name="de-en")]

    def _info(self):
        features = tfds.features.Translation(languages=("de", "en"))
        return tfds.core.DatasetInfo(builder=self, features=features, supervised_keys=("de", "en"))

    def _split_generators(self, dl_manager):
        splits = {"train": (0, 211), "validation": (211, 224), "test": (224, 231)}
        return {split: self._generate_examples(*limits) for split, limits in splits.items()}

    def _generate_examples(self, start, end):
        for number, (english, german) in enumerate(tiny.pairs(231)[start:end]):
            yield number, {"de": german, "en": english}


def recipe(row, averaged):
    """The command of the page, with the name of another corpus and widths that a test can train."""
    command = f"--config docs/table3/{row}.yaml --average_epochs {averaged}"
    assert f"\npython train.py {command}\n" in (DOCS / "table3.md").read_text(encoding="utf-8")
    narrow = "--dataset tfds:news_translate/de-en --d_model 64 --d_ff 128 --batch_tokens 401 --epochs 100000 --dry_run"
    narrow += " --strategy one_device"  # a second strategy of two replicas in one process would disturb the first
    return parse_training(f"{command} {narrow}".split(), "trains")


@pytest.mark.parametrize(("row", "averaged", "steps"), [("base", 5, 100_000), ("big", 20, 300_000)])
def test_the_recipe_of_wmt_14_has_the_numbers_of_the_paper(row, averaged, steps, monkeypatch):
    monkeypatch.chdir(DOCS.parent)
    config, is_dry_run = recipe(row, averaged)
    assert is_dry_run and (config.source_lang, config.target_lang) == ("en", "de")
    assert (config.average_epochs, config.beam_size, config.length_penalty) == (averaged, 4, 0.6)
    assert config.max_steps == steps


@pytest.mark.slow
def test_the_recipe_of_wmt_14_is_rehearsed(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("tensorflow_datasets.core.constants.DATA_DIR", str(tmp_path))
    monkeypatch.chdir(DOCS.parent)
    rehearse(recipe("big", 20)[0])
    printed = capsys.readouterr().out
    assert "300,000 updates in all" in printed and "\ntime        about " in printed
