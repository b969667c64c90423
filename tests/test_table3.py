"""Every row of Table 3 has a file of settings: its sizes are the paper's. `tests/test_docs.py` trains with files."""

import re
from pathlib import Path
from types import SimpleNamespace

import pytest

from keras_transformer.config import Config, read_settings
from keras_transformer.training.train import outline

DOCS = Path(__file__).parents[1] / "docs"

# What the paper lists for a row: N, d_model, d_ff, h, d_k, d_v, P_drop, eps_ls, thousands of updates, millions of
# parameters. The rows that list no parameters have as many as base.
BASE = {"N": 6, "d_model": 512, "d_ff": 2048, "h": 8, "d_k": 64, "d_v": 64, "P": 0.1, "eps": 0.1, "K": 100, "M": 65}
PAPER = {
    "base": {},
    **{f"a_h{h}": {"h": h, "d_k": d, "d_v": d} for h, d in ((1, 512), (4, 128), (16, 32), (32, 16))},
    "b_dk16": {"d_k": 16, "M": 58},
    "b_dk32": {"d_k": 32, "M": 60},
    **{f"c_n{n}": {"N": n, "M": m} for n, m in ((2, 36), (4, 50), (8, 80))},
    "c_d256": {"d_model": 256, "d_k": 32, "d_v": 32, "M": 28},
    "c_d1024": {"d_model": 1024, "d_k": 128, "d_v": 128, "M": 168},
    **{f"c_ff{d_ff}": {"d_ff": d_ff, "M": m} for d_ff, m in ((1024, 53), (4096, 90))},
    **{f"d_{name}0{n}": {key: n / 10} for name, key in (("drop", "P"), ("eps", "eps")) for n in (0, 2)},
    "e_learned": {},
    "big": {"d_model": 1024, "d_ff": 4096, "h": 16, "P": 0.3, "K": 300, "M": 213},
}
# Rows that differ in depth, in the width of heads, or in positions; big differs in all other widths.
BUILT_ROWS = ["c_n2", *(pytest.param(row, marks=pytest.mark.slow) for row in ("b_dk16", "e_learned", "big"))]


def settings_of(row):
    return read_settings(DOCS / "table3" / f"{row}.yaml")


@pytest.mark.parametrize("row", PAPER)
def test_a_file_has_what_the_paper_lists_and_shares_all_other_settings_with_base(row):
    assert {path.stem for path in (DOCS / "table3").iterdir()} == PAPER.keys()
    config, listed = Config(**settings_of(row)), {**BASE, **PAPER[row]}
    d_key = config.d_key or config.d_model // config.num_heads
    found = {"N": config.num_layers, "d_model": config.d_model, "d_ff": config.d_ff, "h": config.num_heads}
    found |= {"d_k": d_key, "d_v": config.d_value or d_key, "P": config.dropout_rate, "eps": config.label_smoothing}
    assert {**found, "K": config.max_steps // 1000, "M": listed["M"]} == listed
    assert config.positions == ("learned" if row == "e_learned" else "sinusoidal")
    assert config.num_decoder_layers is config.num_key_value_heads is None and config.model_dir.endswith(row)
    shape = {"preset", "model_dir", "num_layers", "d_model", "d_ff", "num_heads", "d_key", "d_value", "positions"}
    shape |= {"dropout_rate", "label_smoothing", "max_steps", "epochs", "validate_every"}
    base = vars(Config(**settings_of("base")))
    assert {name for name in base if base[name] != vars(config)[name]} <= shape


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
    assert found == by_hand(row) and found / 1e6 == pytest.approx({**BASE, **PAPER[row]}["M"], rel=0.07)


def test_the_page_has_every_row_with_both_numbers():
    lines = (DOCS / "table3.md").read_text(encoding="utf-8").splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if re.match(r"\|.*\.yaml", line)]
    found = {re.search(r"table3/(\w+)\.yaml", row[1])[1]: (int(row[2]), float(row[3])) for row in cells}
    expected = {row: ({**BASE, **PAPER[row]}["M"], round(by_hand(row) / 1e6, 1)) for row in PAPER}
    assert found == expected
