"""Flags that several programs share: those that choose a model, a search and languages."""

from keras_transformer.errors import UserError
from keras_transformer.process import find_tool
from keras_transformer.protection import read_glossary
from keras_transformer.tags import check_direction
from keras_transformer.tools.exported import read_export
from keras_transformer.translation.lines import BATCH_SIZE
from keras_transformer.translation.options import LANGUAGE_INPUTS, MOST, OPTIONS, options_of

RUN_OPTIONS = ("beam_size", "length_penalty")  # options of a search that are settings of a run


def add_translator_arguments(parser, **instead):
    """Adds to an argparse parser the flags that choose a model and a search: those of translate.py and evaluate.py.

    Args:
        parser: argparse parser.
        instead: flags that replace a model, name=help.
    """
    model = parser.add_mutually_exclusive_group(required=True)
    add_model_dir_argument(model)
    model.add_argument("--saved_model", help="EXPORT_DIR or EXPORT_DIR/VERSION that export.py wrote")
    model.add_argument(
        "--litert", help="EXPORT_DIR or EXPORT_DIR/VERSION that export.py --format litert wrote. It needs no TensorFlow"
    )
    for name, described in instead.items():
        model.add_argument(f"--{name}", help=described)
    add_checkpoint_argument(parser)
    add_language_arguments(parser)
    add_batch_size_argument(parser, " --litert translates one on each core")
    add_option_arguments(parser, "translate_with_options")
    add_shortlist_argument(parser, prefix="only with --model_dir: ")
    parser.add_argument(
        "--glossary",
        help="file of terms and their translations: on every line a source form, a tab and its target form. It needs "
        "a model that was trained with train.py --protect",
    )
    parser.add_argument(
        "--protect",
        action="store_true",
        help="keep URLs, e-mail addresses, numbers with units, {variables}, format directives such as %%s, and `code` "
        "as they are. It needs a model that was trained with train.py --protect",
    )


def add_batch_size_argument(parser, note=""):
    """Adds the flag of the texts that are translated at a time, with a note at the end of its help."""
    described = f"most sentences to translate at a time; fewer of long ones.{note} (default: {BATCH_SIZE})"
    parser.add_argument("--batch_size", type=int, default=BATCH_SIZE, help=described)


def add_language_arguments(parser):
    """Adds the flags that choose a direction of a model of many languages."""
    codes = "de, pt-BR or deu_Latn (default: the language of the run)"
    parser.add_argument("--source_lang", help=f"language of the texts, for a model of many languages: {codes}")
    parser.add_argument(
        "--target_lang",
        help=f"language of the translations, for a model of many languages. A document declares it: {codes}",
    )


def languages(arguments):
    """The languages that were given by the flags of `add_language_arguments`, a dict."""
    return _given(arguments, LANGUAGE_INPUTS)


def add_option_arguments(parser, signature, names=None, prefix=""):
    """Adds a flag for every option of a signature.

    Args:
        parser: argparse parser.
        signature: name.
        names: those of the options to add; None adds all.
        prefix: text before every help.
    """
    for option in options_of(signature):
        if names is None or option.name in names:
            described = f" (default: {text})" if (text := default_text(option)) else ""
            parser.add_argument(f"--{option.name}", type=option.type, help=f"{prefix}{option.help}{described}")


def add_search_arguments(parser):
    """Adds the flags of beam search that are part of a run and of an export."""
    add_option_arguments(parser, "translate_with_options", RUN_OPTIONS)


def add_checkpoint_argument(parser):
    """Adds the flag that chooses the weights of a run."""
    parser.add_argument(
        "--checkpoint",
        default="average",
        help="weights of the run, finished or not: average (of the last epochs, as at the end of training), best (the "
        "epoch with the best validation), last (the newest checkpoint), or the number of one of the last epochs "
        "(default: average)",
    )


def add_model_dir_argument(parser, **settings):
    """Adds the flag of the run, which may come several times."""
    parser.add_argument(
        "--model_dir",
        action="append",
        help="run directory that train.py wrote. Several runs with the same tokenizer (`tokenizer` of train.py), each "
        "with a --model_dir, translate together: the mean of their probabilities counts",
        **settings,
    )


def add_shortlist_argument(parser, prefix):
    """Adds the flag of the lexical shortlist, with text before its help."""
    parser.add_argument(
        "--shortlist",
        type=int,
        metavar="N",
        help=f"{prefix}the search uses only the N likeliest target pieces of each source piece, counted from the "
        "training corpus, and the most frequent pieces. It is faster, and a few translations differ (default: all "
        "pieces)",
    )


def load_translator(arguments):
    """The translator that the flags of `add_translator_arguments` choose.

    Raises:
        UserError: if there is none, for a flag that a SavedModel does not have, and for a language that the model does
            not have.
    """
    if arguments.litert:
        return _load_litert(arguments)
    translator, given = _load(arguments), languages(arguments)
    return translator.between(**given) if given else translator


def _load(arguments):
    from keras_transformer.runs import load

    how = {"batch_size": arguments.batch_size, **protected(arguments)}
    if arguments.saved_model:
        for name, default in (("checkpoint", "average"), ("shortlist", None)):
            if getattr(arguments, name) != default:
                raise UserError(f"--{name} needs --model_dir: for a SavedModel, give --{name} to export.py")
        return load(arguments.saved_model, **how)
    search = {name: getattr(arguments, name) for name in (*RUN_OPTIONS, "shortlist")}
    paths = arguments.model_dir
    return load(paths[0] if len(paths) == 1 else paths, arguments.checkpoint, **how, **search)


def _load_litert(arguments):
    path, reader = arguments.litert, find_tool("engines.translate_litert", "--litert")
    try:
        translator = reader.LiteRTTranslator(path)
    except (OSError, ValueError, RuntimeError) as error:
        raise UserError(f"no LiteRT export at {path}, or it is damaged: {error}") from error
    translator.languages = read_export(translator.path)[1]
    check_direction(translator.languages, **languages(arguments))
    return translator


def protected(arguments):
    """The arguments of a translator that `--glossary` and `--protect` ask for: dict, {} if neither is given.

    Raises:
        UserError: for a glossary that cannot be read.
    """
    if not arguments.glossary and not arguments.protect:
        return {}
    try:
        terms = read_glossary(arguments.glossary) if arguments.glossary else None
    except ValueError as error:
        raise UserError(str(error)) from None
    return {"glossary": terms, "protect": arguments.protect}


def check_litert(arguments, *others):
    """Raises UserError for a flag that does not go with `--litert`.

    Args:
        arguments: parsed flags.
        others: names of flags of the program that need more than the best translation and its score.
    """
    names = (*(option.name for option in OPTIONS), "shortlist", "glossary")
    others = (*others, "protect")
    given = [name for name in names if getattr(arguments, name, None) is not None]
    given += [name for name in others if getattr(arguments, name)]
    given += ["checkpoint"] if arguments.checkpoint != "average" else []
    if arguments.litert and given:
        raise UserError(
            f"--{given[0]} does not go with --litert: export.py has chosen the search, and it gives the best "
            "translation only; leave one out"
        )


def search_options(arguments):
    """The options that were given for `TextTranslator.translate`, a dict, from the flags of a program."""
    at_load = set(RUN_OPTIONS) - set(_told_at_each_call(arguments))
    names = [option.name for option in options_of("translate_with_options") if option.name not in at_load]
    return _given(arguments, names)


def sampling_options(arguments):
    """The options that were given for `TextTranslator.sample`, a dict, from the flags of a program."""
    return _given(arguments, [option.name for option in options_of("sample")])


def _given(arguments, names):
    return {name: value for name in names if (value := getattr(arguments, name, None)) is not None}


def _told_at_each_call(arguments):
    """Options of a run that a SavedModel takes at each call, because it is loaded with its own inside."""
    return RUN_OPTIONS if arguments.saved_model else ()


def check_ranges(arguments):
    """Raises UserError, with its name, for a number out of range."""
    ranges = dict.fromkeys(("batch_size", "n_best", "shortlist"), (1, MOST))
    ranges["tmx_threshold"] = (1, 100)
    ranges |= {option.name: (option.least, option.most) for option in OPTIONS if option.range}
    for name, (least, most) in ranges.items():
        value = getattr(arguments, name, None)
        if value is not None and not least <= value <= most:
            raise UserError(f"--{name} must be between {least:.15g} and {most:.15g}. Received: {name}={value}")


def check_width(translator, **sizes):
    """Raises UserError, with its name, for a size above the translator's beam size; None is no size."""
    for name, size in sizes.items():
        if size is not None and size > translator.width:
            raise UserError(f"--{name} must be at most the model's beam size, {translator.width}. Received: {size}")


def default_text(option):
    """The default of an `Option` for a person; "" for text."""
    if option.default_note or option.dtype == "string":
        return option.default_note
    return "that of the run" if option.default is None else f"{option.default:g}"
