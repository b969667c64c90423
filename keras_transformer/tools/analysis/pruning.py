"""A smaller Transformer without some of its heads: fewer rows and columns in the matrices of its attentions."""

import dataclasses
import shutil
import time
from pathlib import Path

import numpy as np
from keras import ops

from keras_transformer.config import Config
from keras_transformer.errors import FileError, UserError
from keras_transformer.runs import Run
from keras_transformer.tags import load_tags
from keras_transformer.tools import check_new_directory
from keras_transformer.tools.analysis.gates import KINDS, attentions_of, divide_by_attention
from keras_transformer.tools.analysis.silencing import least_important
from keras_transformer.training.run_directory import RunDirectory


def prune(model, heads):
    """A model without some heads. It gives the same results as `model` with these heads `silenced`.

    The matrices of an attention lose the columns of W^Q, W^K and W^V and the rows of W^O that belong to these heads.
    The residual connection of an attention that loses all heads adds zeros.

    Args:
        model: `Transformer`.
        heads: bool (N,), True for a head that is left out; see `attentions_of`.

    Returns:
        `Transformer`, whose argument `heads` has the numbers of the remaining heads.

    Raises:
        UserError: if heads share their keys and values, or if the last attention to memory would lose all heads,
            because `Transformer.align` reads this attention.
    """
    attentions, of_attentions = attentions_of(model), divide_by_attention(model, heads)
    if any(a.sublayer.num_key_value_heads != a.num_heads for a in attentions):
        raise UserError("heads that share their keys and values (num_key_value_heads) cannot be pruned")
    if np.all(of_attentions[-1]):
        raise UserError(f"the last attention to memory needs a head. Received: {np.sum(heads)} heads to prune")
    kept = {(a.kind, a.layer): ~gone for a, gone in zip(attentions, of_attentions, strict=True)}
    depths = {"encoder": len(model.encoder.layers), "decoder": len(model.decoder.layers)}
    depths["cross"] = depths["decoder"]
    counts = [[np.sum(kept.get((kind, layer), [])) for layer in range(depths[kind])] for kind in KINDS]
    arguments = {
        **model.get_config(),
        "heads": "/".join(",".join(f"{count:.0f}" for count in of_kind) for of_kind in counts),
        "d_key": attentions[0].sublayer.d_key,
        "num_key_value_heads": None,
    }
    smaller = type(model).from_config(arguments)
    values = {weight.path: ops.convert_to_numpy(weight) for weight in model.weights}
    for attention in attentions:
        sublayer, stays = attention.sublayer, kept[attention[:2]]
        widths = {sublayer.query: sublayer.d_key, sublayer.key: sublayer.d_key, sublayer.value: sublayer.d_value}
        for linear, width in widths.items():
            for weight in linear.weights:  # (D, H K), and the bias (H K,) if there is one
                values[weight.path] = values[weight.path][..., np.repeat(stays, width)]
        output = sublayer.output_projection
        values[output.kernel.path] = values[output.kernel.path][np.repeat(stays, sublayer.d_value)]
        if output.use_bias:
            values[f"{sublayer.path}/output_bias"] = values[output.bias.path]  # if no head stays
    for weight in smaller.weights:
        weight.assign(values[weight.path])
    return smaller


def to_prune(model, importance, count):
    """The `count` least important heads, but never all heads of the last attention to memory.

    Args:
        model: `Transformer`.
        importance: (N,), that of `Heads`.
        count: int, below N.

    Returns:
        bool (N,).
    """
    importance = np.array(importance, np.float64)
    last = attentions_of(model)[-1].num_heads
    importance[len(importance) - last + np.argmax(importance[-last:])] = np.inf
    return least_important(importance, count)


def pruned_curve(translator, texts, references, score, importance, counts, on_progress=None):
    """Prunes more and more heads, and translates with each model.

    Args:
        translator: `Translator`, whose model is a `Transformer`.
        texts: list of str.
        references: list of str, their translations.
        score: function (translations, references) -> float, such as BLEU.
        importance: (N,), that of `Heads`.
        counts: list of int, the numbers of heads to prune.
        on_progress: called with 1 after each model.

    Returns:
        list of (number of pruned heads, score, sentences per second, `Transformer`).
    """
    rows = []
    for count in counts:
        model = prune(translator.model, to_prune(translator.model, importance, count))
        smaller = translator.with_model(model, batch_size=translator.batch_size)
        smaller.translate(texts[:1])  # makes the graph
        started = time.perf_counter()
        translations = smaller.translate(texts)
        rows.append((count, score(translations, references), len(texts) / (time.perf_counter() - started), model))
        if on_progress:
            on_progress(1)
    return rows


def keep_pruned(run, model, path):
    """Writes a copy of a run directory with a pruned model.

    The directory can be used like a finished run. Its config.yaml continues the training: `train.py --config
    PATH/config.yaml` starts from the pruned model, and writes PATH_trained.

    Args:
        run: `Run`.
        model: `Transformer`, made by `analysis.prune` of the model of the run.
        path: of the directory, which must not exist or be empty.

    Returns:
        `Run`.

    Raises:
        UserError: if the directory exists or cannot be written.
    """
    source, target = RunDirectory(run.path), RunDirectory(path)
    check_new_directory(target.path)
    settings = {"heads": model.heads, "d_key": model.d_key, "num_key_value_heads": None, "tokenizer": None}
    settings |= {
        "replay": 0.0,
        "extend_vocabulary": None,
        "init_from": str(target.path),
        "model_dir": f"{target.path}_trained",
    }
    config = Config(**{**dataclasses.asdict(run.config), **settings})
    try:
        target.path.mkdir(parents=True, exist_ok=True)
        for file in (*source.tokenizer_files(config.has_one_tokenizer), source.samples):
            shutil.copyfile(file, target.path / file.name)
        for file in filter(Path.exists, (source.full_stops, source.decided, source.corpus)):
            shutil.copyfile(file, target.path / file.name)
        if tags := load_tags(source.path):
            tags.save(target.path)
        target.keep_architecture(model)
        model.save(target.model)
        config.save(target.config)  # the last: a directory without it is no run
    except OSError as error:
        raise FileError.of("write", path, error) from error
    return Run(path)
