"""Every setting of a run, described once: name, type, default, help, range, what it needs and what it excludes.

From this table come the fields of `Config`, the flags and their `--help`, the checks of values, what a run takes from
the run that it starts from, and what may change when it is resumed. `presets` has the numbers of the presets.
"""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, NamedTuple

from keras_transformer.presets import (
    ACTIVATIONS,
    AUTOREGRESSIONS,
    LENGTH_PENALTIES,
    MOST_HYPOTHESES,
    OPTIMIZERS,
    POSITIONS,
    PRESETS,
    RECURRENT,
    SINUSOIDAL,
    fits_layers,
    split_frame_setting,
    worker_addresses,
)


class Rule(NamedTuple):
    """The range of a setting: how an error says it after the name, and whether a value is in it."""

    text: str
    holds: Callable[[Any], bool]


@dataclass(frozen=True)
class Setting:
    """What is known of a setting beside its name, its type and its default, which are those of a field of `Config`.

    Attributes:
        range: `Rule` of its value; a value of None is always in it.
        help: str, for `--help` and the reference. {numbers} stands for the numbers of the presets.
        metavar: str, what `--help` shows for the value; None: its type.
        only_with: dict, setting -> values. With other values of them, this setting has no effect.
        useless_with: dict, setting -> why. Where that one is given, this setting has no effect.
        needs: name of the setting that must be given if this one is.
        excludes: dict, setting -> why. Where this setting is given, that one must not be.
        rules: dict, text of an error -> function of a `Config`. They hold where this setting has an effect. The text
            may show settings, such as {0.d_model}.
        of_model: dict, setting -> values, with which it belongs to the model: a run takes it from the run that it
            starts from, and must not change it. {}: always. None: never.
        may_change: whether a run may be resumed with another value.
        suited: whether None stands for the number of the preset, or for less if the corpus is small.
        usual: that number, where the preset does not name the setting.
    """

    range: Rule | None = None
    help: str = ""
    metavar: str | None = None
    only_with: dict = dataclasses.field(default_factory=dict)
    useless_with: dict = dataclasses.field(default_factory=dict)
    needs: str | None = None
    excludes: dict = dataclasses.field(default_factory=dict)
    rules: dict = dataclasses.field(default_factory=dict)
    of_model: dict | None = None
    may_change: bool = False
    suited: bool = False
    usual: int | None = None


def setting(default, *range, help, **known):
    """The field of `Config` for a setting: its default, the `Rule` of its range, and what else `Setting` knows."""
    described = Setting(*range, help=" ".join(help.split()), **known)
    return dataclasses.field(default=default, metadata={"setting": described})


def between(least, most):
    """The `Rule` of numbers from `least` to `most`."""
    return Rule(f"must be between {least:g} and {most:g}", lambda value: least <= value <= most)


COUNT = Rule("must be at least 1", lambda value: value >= 1)
SHARE = Rule("must be in [0, 1)", lambda value: 0 <= value < 1)
POSITIVE = Rule("must be positive", lambda value: value > 0)
NOT_NEGATIVE = Rule("must not be negative", lambda value: value >= 0)

OF_TRANSFORMER = {"architecture": ("transformer",)}
OF_RECURRENT = {"architecture": RECURRENT}
LEARNED = {"positions": ("learned",)}
ATTENTION = {**OF_RECURRENT, "attention": ("additive", "dot", "general", "concat")}
GIVEN_TOKENIZER = dict.fromkeys(("tokenizer", "init_from"), "which brings a tokenizer")

of_model = partial(setting, of_model={})
of_transformer = partial(of_model, only_with=OF_TRANSFORMER)
of_recurrent = partial(of_model, only_with=OF_RECURRENT)


# fmt: off
# A table: a setting has its facts on the first lines, and then the rules that it keeps beside others.
@dataclass(frozen=True)
class RunSettings:
    """The run"""

    preset: Literal[tuple(PRESETS)] = setting("quickstart",
        help="Gives the defaults of all other settings. keras_transformer/presets.py lists them.")
    model_dir: str = setting("", Rule("must name a directory; leave it out for runs/PRESET", bool), may_change=True,
        help="Directory of the run: config, tokenizer, checkpoints, logs, model. The same command resumes the run.")


@dataclass(frozen=True)
class CorpusSettings:
    """The corpus"""

    dataset: str | tuple[str, ...] = setting("cldr:en-de", metavar="CORPUS[:WEIGHT]", help="""
        Corpus: cldr:A-B (made from Unicode locale data, no download), files:DIR (train.LANG, val.LANG, ...) or
        tfds:NAME[/CONFIG]. Several are mixed, and the first one decides which weights are best. :WEIGHT may follow a
        name. With :3, an epoch takes every pair three times. With :0.3, it takes 30 % of the pairs, and the next epoch
        takes others. @A-B may follow a name, before the weight: the corpus then translates A to B, such as
        files:DIR@en-de:0.3. With several directions, one model learns them all.""")
    tags: Literal["source", "both", "none"] = of_model("source", help="""
        Tokens that tell a model of several directions the languages. source: the first token of the source names the
        target language. both: it names the source language, and the decoder begins with a token of the target
        language. none: a model of one direction needs none, if it starts from one of several (`init_from`).""")
    sampling_temperature: float = setting(1.0, Rule("must be at least 1", lambda value: value >= 1),
        help="""
        T, at least 1: an epoch takes pairs of each corpus in proportion to (weight x size)^(1/T). So a larger T lets an
        epoch take more of small corpora and less of large ones. An epoch keeps its size. 1 changes nothing.""",
        excludes={"replay": "which fixes the share of old pairs"},
        rules={"needs several corpora in `dataset`": lambda c: c.sampling_temperature == 1 or len(c.corpora) > 1})
    source_lang: str | None = setting(None,
        help="Code of the language to translate from, such as en. A corpus files:DIR needs it.")
    target_lang: str | None = setting(None, help="Code of the language to translate to. A corpus files:DIR needs it.")
    skip_bad_lines: bool = setting(False,
        help="Leave out and list the lines of a corpus files:DIR that are no pair, such as a TSV line without a tab.")
    vocabulary_size: int = setting(8000, COUNT, useless_with=GIVEN_TOKENIZER,
        help="V: most pieces of a tokenizer. A small corpus may give fewer.")
    character_coverage: float = setting(0.9995, between(0.98, 1), useless_with=GIVEN_TOKENIZER, help="""
        Share of the characters of the text that become pieces. Rarer characters are written as bytes. 1 makes every
        character a piece, which fills a small vocabulary.""")
    nfkc: bool = setting(False, useless_with=GIVEN_TOKENIZER, help="""
        Full-width letters and other compatibility characters become ordinary ones, as in Unicode's form NFKC. With two
        tokenizers, only in the source. All text has the form NFC, single spaces and no invisible characters anyway.""")
    share_vocabulary: bool = of_model(True,
        help="One vocabulary and one tokenizer for both languages, as in the paper. false: one for each language.",
        rules={"must be true with `tokenizer`": lambda c: c.share_vocabulary or c.tokenizer is None})
    share_tokenizer: bool | None = of_model(None, help="""
        By default, the value of `share_vocabulary`. With a shared vocabulary, false gives source and target a tokenizer
        each, and an id means the same piece in both. Runs of OPUS-MT models have two, so give it with `init_from`.""",
        rules={
            "must not be false with `tokenizer`": lambda c: c.has_one_tokenizer or c.tokenizer is None,
            "must not be true with `share_vocabulary` false": lambda c: c.share_vocabulary or not c.has_one_tokenizer,
        })
    tokenizer: str | None = setting(None,
        help="SentencePiece model for both languages, instead of training one. It needs pad 0, unk 1, bos 2 and eos 3.")
    protect: float = setting(0.0, SHARE, help="""
        Share of the pairs in which words become placeholders: numbers, URLs, addresses and names on both sides, and
        words that translate each other. Every epoch draws new pairs. So the model learns to keep words.""")
    upper_case: float = setting(0.0, SHARE, help="""
        Share of the pairs that training writes in capitals, on both sides. Scripts without case stay as they are.""")
    title_case: float = setting(0.0, SHARE,
        help="Share of the pairs in which every word begins with a capital, on both sides.")
    typos: float = setting(0.0, SHARE,
        help="Share of the pairs whose source gets slips of the hand: swapped, missing, doubled and wrong letters.")
    noise: float = setting(0.0, SHARE,
        help="Share of the pairs that get the same random symbol on both sides. So the model learns to copy emoji.")
    max_length: int = setting(256, COUNT, of_model=LEARNED,
        help="Most tokens on either side of a training pair. Longer pairs are left out. Longer texts are divided.")
    init_from: str | None = setting(None, excludes={"tokenizer": "as it brings its own"},
        help="Directory of a finished run. Training starts from its weights and tokenizer, with a model of its shape.")
    replay: float = setting(0.0, SHARE, needs="init_from",
        help="Share of the pairs of an epoch that come from the corpora of the run `init_from`, against forgetting.")
    extend_vocabulary: int | None = setting(None, COUNT, needs="init_from", help="""
        Most new pieces that the tokenizer of `init_from` gets from the new text. The vector of a new piece starts as
        the mean of the vectors of the old pieces that spell it.""",
        rules={
            "cannot extend one vocabulary of two tokenizers":
                lambda c: c.extend_vocabulary is None or c.share_vocabulary == c.has_one_tokenizer,
        })
    lora_rank: int | None = setting(None, COUNT, only_with=OF_TRANSFORMER, needs="init_from",
        excludes={"extend_vocabulary": "whose new vectors must be trained"}, help="""
        R: train adapters alone, a product of two matrices of the widths D x R and R x D beside each matrix of the
        attentions and feed-forward networks (LoRA, Hu et al. 2021). All weights of `init_from` stay. This takes less
        memory, and the finished model has the size that it had.""")


@dataclass(frozen=True)
class ModelSettings:
    """The model (sections 3 and 5.4 of the paper)"""

    d_model: int = of_model(128, COUNT, help="D: width of the model.",
        rules={
            "must be even": lambda c: c.d_model % 2 == 0 or not (
                c.architecture == "transformer" and c.positions in SINUSOIDAL
                or c.architecture in RECURRENT and c.bidirectional),
            "must be at least 4 with `positions` sinusoidal_tensor2tensor": lambda c: c.d_model >= 4 or (
                c.architecture != "transformer" or c.positions != "sinusoidal_tensor2tensor"),
        })
    d_ff: int = of_transformer(512, COUNT, help="F: inner width of the feed-forward networks.")
    num_heads: int = of_transformer(4, COUNT,
        help="H: heads of every attention. It must divide `d_model`, unless `d_key` is given.",
        rules={"must divide `d_model`, {0.d_model}": lambda c: c.d_key is not None or c.d_model % c.num_heads == 0})
    num_layers: int = of_model(2, COUNT,
        help="N: layers of the encoder, and of the decoder unless `num_decoder_layers` is given.")
    num_decoder_layers: int | None = of_transformer(None, COUNT,
        help="Layers of the decoder. By default, `num_layers`. A decoder with fewer layers translates faster.")
    decoder: Literal[AUTOREGRESSIONS] = of_transformer("attention", help="""
        How the decoder learns of the tokens before. attention: self-attention, as in the paper (3.1). ssru: a
        recurrence (Kim et al. 2019) that keeps one vector, not the keys and values of all tokens. A search takes less
        time and memory. Marian's fast students have it.""")
    d_key: int | None = of_transformer(None, COUNT,
        help="K: width of a head. By default, `d_model` / `num_heads`.",
        rules={
            "must be even with rotary positions, and is `d_model` / `num_heads` by default. "
            "Or choose other `positions`": lambda c: c.positions != "rotary" or (
                (c.d_key or c.d_model // c.num_heads) % 2 == 0),
        })
    d_value: int | None = of_transformer(None, COUNT, help="Width of the values of a head. By default, K.")
    num_key_value_heads: int | None = of_transformer(None, COUNT, help="""
        Heads of keys and values in every attention. Several query heads share each of them. By default, `num_heads`,
        which it must divide. Fewer heads make the cache of a search smaller.""",
        rules={"must divide `num_heads`, {0.num_heads}": lambda c: c.num_heads % (c.num_key_value_heads or 1) == 0})
    heads: str | None = of_transformer(None, needs="d_key",
        help="Heads of each attention of a pruned model, such as 4,3/4,4/0,2: encoder / decoder / decoder to memory.",
        excludes={"num_key_value_heads": "of which all attentions have equally many"},
        rules={
            "must have {0.num_layers}/{0.decoder_depth}/{0.decoder_depth} numbers, the last one not 0":
                lambda c: c.heads is None or fits_layers(c.heads, c.num_layers, c.decoder_depth),
        })
    positions: Literal[POSITIONS] = of_transformer("sinusoidal", help="""
        How the model knows the order of the tokens. sinusoidal (the paper's) and learned are added to the embeddings.
        sinusoidal_halves (Marian models of Hugging Face) and sinusoidal_tensor2tensor (Marian, M2M-100, OpenNMT-tf)
        have the sines first, then the cosines. relative (Shaw et al. 2018) and rotary (Su et al. 2021) act in
        self-attention.""")
    first_position: int = of_transformer(0, NOT_NEGATIVE, only_with={**OF_TRANSFORMER, "positions": SINUSOIDAL},
        help="Number of the first position of sinusoids. The paper's is 0, OpenNMT-tf's 1, M2M-100's 2.")
    tie_positions: bool = of_transformer(True, only_with={**OF_TRANSFORMER, **LEARNED},
        help="One table of learned positions for source and target. false gives source and target a table each.",
        rules={
            "must be false with `embedding_norm` and learned positions":
                lambda c: not (c.tie_positions and c.embedding_norm),
        })
    relative_clip: int = of_transformer(16, COUNT, only_with={**OF_TRANSFORMER, "positions": ("relative",)},
        help="k: the largest distance that relative positions distinguish. All larger distances count as k.")
    dropout_rate: float = setting(0.1, SHARE, help="P_drop: dropout of embeddings and residual connections.")
    attention_dropout_rate: float = setting(0.0, SHARE, only_with=OF_TRANSFORMER,
        help="Dropout of the attention weights.")
    feed_forward_dropout_rate: float = setting(0.0, SHARE, only_with=OF_TRANSFORMER,
        help="Dropout inside the feed-forward networks.")
    subword_dropout_rate: float = setting(0.0, SHARE, help="""
        BPE-dropout (Provilkov et al. 2020): probability that training skips a merge of BPE, on both sides. So a model
        does not learn a small corpus by heart. The last tenth of a run has none. 0.05 makes sentences 20 % longer.""")
    pre_norm: bool = of_transformer(False, help="Normalise before each sub-layer. The paper normalises after it.")
    frame: str | None = of_transformer(None,
        Rule("must be ids before the source/after it/before bos, such as /3/, and no padding",
             split_frame_setting), help="""
        Ids of tokens that an imported model expects around every text: before the source / after it / before bos, such
        as /3/ (eos after the source, as Marian) or 17/3/3. They are part of the model: no result shows them.""")
    attention_bias: bool = of_transformer(False,
        help="Biases in the four projections of every attention, Q = X W + b. The paper has none.")
    activation: Literal[ACTIVATIONS] = of_transformer("relu", help="""
        Function inside the feed-forward networks. relu is the paper's, gelu the exact one with erf, silu also called
        swish. gelu_tanh (OpenNMT-tf) and gelu_sigmoid (old Marian) are approximations of gelu.""")
    layer_norm_epsilon: float = of_transformer(1e-6, POSITIVE, help="epsilon of layer normalisation, under its root.")
    scale_embeddings: bool = of_transformer(True,
        help="Multiply the embeddings, and learned positions, by the square root of `d_model`, as in the paper (3.4).")
    embedding_norm: bool = of_transformer(False, help="Normalise the sums of embeddings and positions, as mBART does.")
    logits_bias: bool = of_transformer(False, help="A bias for every token in the logits. The paper has none.")
    tie_embeddings: bool = of_model(True, help="""
        One matrix for the embeddings and the logits, as in the paper (3.4). With two vocabularies, the target and the
        logits share it. false gives source, target and logits a matrix each.""")


@dataclass(frozen=True)
class RecurrentSettings:
    """The recurrent networks of the time before (architecture rnn, lstm or gru)"""

    architecture: Literal[("transformer", *RECURRENT)] = of_model("transformer",
        help="The Transformer, or a recurrent network with simple (rnn), LSTM or GRU cells.")
    bidirectional: bool = of_recurrent(True,
        help="The recurrent encoder reads in both directions. Each direction has half the width.")
    attention: Literal["additive", "dot", "general", "concat", "none"] = of_recurrent("additive", help="""
        Score of the recurrent decoder's attention (additive: Bahdanau; the others: Luong). none: a fixed context.""")
    attention_span: Literal["global", "local_m", "local_p"] = of_recurrent("global", only_with=ATTENTION,
        help="Source positions that attention sees: all, or a window around the target position or a predicted one.")
    attention_window: int = of_recurrent(10, COUNT, only_with={**ATTENTION, "attention_span": ("local_m", "local_p")},
        help="Source positions on each side of the centre of a local span.")
    hard_attention: bool = of_recurrent(False, only_with=ATTENTION,
        help="Attend to one source position only. Training draws it at random. Translation takes the most likely one.")
    context: Literal["last", "mean"] = of_recurrent("last", only_with={**OF_RECURRENT, "attention": ("none",)},
        help="State of the encoder that a decoder without attention sees: the last one, or the mean of all.")
    input_feeding: bool = of_recurrent(False,
        help="The recurrent decoder also reads its last output (Luong). So it knows where it has looked.")


@dataclass(frozen=True)
class TrainingSettings:
    """Training (section 5)"""

    epochs: int = setting(10, COUNT, may_change=True, help="Passes over the corpus.")
    max_steps: int | None = setting(None, COUNT, may_change=True,
        help="Most updates. Training stops after them, if the epochs have not ended before.")
    batch_tokens: int | None = setting(None, COUNT, suited=True, usual=4096, help="""
        Most positions (rows x length, padding included) of either side of a batch, on all devices. Pieces that changes
        of pairs add are not counted. By default, the number of the preset ({numbers}).
        A small corpus gets smaller batches, so that an epoch has about 100 updates.""")
    accumulate_steps: int = setting(1, COUNT,
        help="Batches for each update, as if they were one batch. Use it for batches that do not fit in memory.")
    optimizer: Literal[tuple(OPTIMIZERS)] = setting("adam",
        help="Optimizer of Keras. adam is the paper's. OPTIMIZERS in keras_transformer/presets.py has their arguments.")
    weight_decay: float | None = setting(None, NOT_NEGATIVE,
        help="Share of every weight that an update takes away, times the learning rate. The default of adamw is "
        f"{OPTIMIZERS['adamw']['weight_decay']}.")
    clip_norm: float | None = setting(None, POSITIVE,
        help="Largest norm of an update's gradient. A larger gradient is scaled down to it. By default, no limit.")
    peak_learning_rate: float | None = setting(None, POSITIVE, suited=True, help="""
        Learning rate at the end of the warm-up. By default, the number of the preset ({numbers}),
        else the rate of equation (3), (`d_model` x `warmup_steps`)^-0.5. If a small corpus makes the batches n times
        smaller than the preset's, this default is divided by sqrt(n).""")
    warmup_steps: int | None = setting(None, COUNT, suited=True, usual=4000, help="""
        Updates in which the learning rate rises linearly, before it falls. By default, the number of the preset
        ({numbers}), but at most a tenth of the run.""")
    schedule: Literal["inverse_square_root", "linear", "cosine"] = setting("inverse_square_root", help="""
        How the learning rate falls after the warm-up. inverse_square_root is the paper's and never reaches 0. linear
        and cosine reach 0 at the end of the last epoch.""")
    label_smoothing: float = setting(0.1, SHARE,
        help="eps_ls: share of the target probability that is spread evenly over the vocabulary.")
    consistency: Literal["none", "simcut", "r_drop"] = setting("none", help="""
        Runs the model twice on every batch, and adds the divergence of both predictions to the loss. simcut (Gao et al.
        2022) cuts tokens from the second input. r_drop (Liang et al. 2021) draws another dropout. An update takes
        twice the time. Use it for a model that learns its corpus by heart: a small model loses quality.""")
    consistency_weight: float | None = setting(None, NOT_NEGATIVE, only_with={"consistency": ("simcut", "r_drop")},
        help="Factor of the divergence of the two passes. By default, 3 for simcut and 5 for r_drop.")
    cut_rate: float = setting(0.05, SHARE, only_with={"consistency": ("simcut",)},
        help="Share of the tokens that simcut cuts, on both sides.")
    guided_alignment: float = setting(0.0, NOT_NEGATIVE, only_with=OF_TRANSFORMER, metavar="W", help="""
        W: factor of a second loss, such as 0.05. It trains the first head of the attention to the source, in the last
        layer but one of the decoder, to look at the words that are translated (Chen et al. 2016). Documents then get
        their tags where they belong: explanations read this head. 0 leaves the loss out.""",
        rules={"does not go with `consistency`: set one of them": lambda c: not c.guided_alignment or
               c.consistency == "none"})
    alignments: str | None = setting(None, metavar="FILE", needs="guided_alignment", help="""
        Links between the words of the training text, a line for each pair, such as 0-0 1-2: as fast_align and eflomal
        write them. By default, `guided_alignment` learns links from the training text (IBM model 1 in both directions).
        """)
    scheduled_sampling_rate: float = setting(0.0, SHARE,
        help="Share of the target tokens that the model's own predictions replace in training (Bengio).")
    patience: int | None = setting(None, COUNT, may_change=True, help="""
        Training stops after this many epochs without a better validation measure. By default, it never stops early.""")
    average_epochs: int | None = setting(None, COUNT, may_change=True,
        useless_with={"ema_decay": "whose average is the final model"}, help="""
        The final model is the average of the weights after this many last epochs. By default, a fifth of them.""")
    ema_decay: float | None = setting(None, Rule("must be between 0 and 1", lambda value: 0 < value < 1),
        help="Decay, such as 0.999, of an exponential average of the weights. This average is validated and exported.")
    validate_every: int | None = setting(None, COUNT, help="""
        Updates between two validations. By default, a pass over the corpus. An epoch then means this many updates, on
        the screen and for `patience` and `average_epochs`.""")
    best_by: Literal["bleu", "loss"] = setting("bleu",
        help="Validation measure that decides which checkpoint is kept as the best one.")
    tokenize: str = setting("auto",
        help="How sacreBLEU splits words: 13a, none for tokenised text, zh, ... auto: as language and text need it.")
    validation_sentences: int = setting(1000, COUNT, help="Most sentences for the validation BLEU after every epoch.")
    score_test: bool = setting(True, may_change=True, help="""
        At the end, translate the test set, if there is one. false scores the validation set, so that no choice can rest
        on the test set.""")
    save_minutes: float = setting(10.0, NOT_NEGATIVE, may_change=True,
        help="Minutes between two saves within an epoch. 0 saves after every update.")
    seed: int = setting(1, Rule("must be at least 0 and below 2^31", lambda value: 0 <= value < 2**31),
        help="Seed of the initial weights, dropout, shuffling and the generated corpus.")


@dataclass(frozen=True)
class DeviceSettings:
    """Devices"""

    strategy: Literal["auto", "mirrored", "one_device", "multi_worker"] = setting("auto", may_change=True, help="""
        mirrored: MirroredStrategy on all GPUs (or CPU devices). multi_worker: MultiWorkerMirroredStrategy on the
        machines in TF_CONFIG or `workers`. auto: mirrored, or one_device if there is only one device.""")
    workers: str | None = setting(None,
        Rule("must be such as train-{0..3}.train:2222", worker_addresses),
        only_with={"strategy": ("multi_worker",)}, may_change=True, help="""
        Addresses of all machines of multi_worker, such as train-{0..3}.train:2222 for four. The environment variable
        JOB_COMPLETION_INDEX, which an Indexed Job of Kubernetes sets, tells which of them this is, counted from 0.""")
    precision: Literal["auto", "float32", "bfloat16", "float16"] = setting("auto", help="""
        Dtype of activations. Weights stay float32. auto: bfloat16 if the hardware multiplies it fast, else float32.""")


@dataclass(frozen=True)
class DecodingSettings:
    """Decoding"""

    beam_size: int = setting(4, between(1, MOST_HYPOTHESES), may_change=True,
        help="W: hypotheses that beam search keeps.")
    length_penalty: float = setting(0.6, between(*LENGTH_PENALTIES), may_change=True,
        help="alpha of ((5 + n) / 6)^alpha (GNMT). Larger values prefer longer translations.")
    split_sentences: bool = setting(True, may_change=True,
        help="Translate a text sentence by sentence. false translates a line at once, even several sentences.")


GROUPS = (
    RunSettings, CorpusSettings, ModelSettings, RecurrentSettings, TrainingSettings, DeviceSettings, DecodingSettings,
)
# fmt: on


def _described(name, known):
    """The `Setting` with the numbers of the presets in its help, such as "quickstart 2,048; base, big 25,000"."""
    presets = {}
    for preset, given in PRESETS.items():
        if known.suited and name in given:
            presets.setdefault(given[name], []).append(preset)
    numbers = [f"{', '.join(names)} {number:,}" for number, names in presets.items()]
    numbers += [f"else {known.usual:,}"] if known.usual else []
    return dataclasses.replace(known, help=known.help.replace("{numbers}", "; ".join(numbers)))


SETTINGS = {
    field.name: _described(field.name, field.metadata["setting"])
    for group in GROUPS
    for field in dataclasses.fields(group)
}
