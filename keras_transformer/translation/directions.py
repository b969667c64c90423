"""Directions: the tags that a model of many languages reads with every part of a text, found in the graph.

`tags.py` says where tags stand. A model of one direction has none: its dicts of `tags` are empty, and the functions
here change nothing. A text may begin with a tag itself: ">>fra<< Hello", as for OPUS-MT, or "<2fr> Hello".
"""

import regex
import tensorflow as tf

from keras_transformer.config import BOS_ID
from keras_transformer.languages import SIMPLER, find_code, short_codes, spellings_of
from keras_transformer.layers.embedding import unframed
from keras_transformer.tags import LanguageTags
from keras_transformer.translation.sentences import BLANK

CODE = r"[\pL\pN_-]+"
WRITTEN_TAG = rf"\A({BLANK}*)(?:>>({CODE})<<|<2({CODE})>){BLANK}*"  # the space before it, its code, the space behind
REST = r"\C*"  # bytes, which may be invalid UTF-8
UNKNOWN_LANGUAGE = -1e9  # the score of a row whose language the model does not have: no translation has it


class Directions:
    """Turns the languages of texts into the ids of their tags.

    Args:
        tags: `LanguageTags`.
    """

    def __init__(self, tags: LanguageTags):
        self.tags = tags

    def of(self, text, source_lang, target_lang, **options):
        """Finds the direction of each text. A tag at the start of a text counts more than its `target_lang`.

        Args:
            text: string (B,).
            source_lang, target_lang: string (B,), codes in any form of `find_code`. "" and an unknown code mean the
                default.
            options: name -> tensor (B,), which stay as they are.

        Returns:
            dict of the text without the tag that it begins with, of the options, and of ids in place of the languages,
            int32 (B,): "source_tag", the first token of the source, and "first_id", the first token of the decoder,
            unless that is bos in every direction.
        """
        tags = self.tags
        default_source, default_target = tags.default
        written = self._written(text)
        text = tf.where(written > 0, tf.strings.regex_replace(text, WRITTEN_TAG, r"\1", replace_global=False), text)
        target = _or_default(found(tags.targets, target_lang), tags.targets[default_target])
        target = tf.where(written > 0, written, target)
        if tags.place == "source":
            return {"text": text, "source_tag": target, **options}
        source = _or_default(found(tags.sources, source_lang), tags.sources[default_source])
        return {"text": text, "source_tag": source, "first_id": target, **options}

    def marked(self, outputs, text, source_lang, target_lang, **_):
        """The outputs of a signature, with the score `UNKNOWN_LANGUAGE` in rows of a language that is not the model's.

        Args:
            outputs: dict of tensors (B, ...).
            text, source_lang, target_lang: those of `of`.
        """
        is_source = (source_lang == "") | (found(self.tags.sources, source_lang) > 0)
        is_target = (target_lang == "") | (found(self.tags.targets, target_lang) > 0) | (self._written(text) > 0)
        is_known, marked = is_source & is_target, {}
        for name in {"score", "scores"} & outputs.keys():
            score = outputs[name]
            marked[name] = tf.where(is_known if score.shape.rank == 1 else is_known[:, None], score, UNKNOWN_LANGUAGE)
        return outputs | marked

    def _written(self, text):
        """The id of the language of the tag at the start of each text: string (B,) -> int32 (B,), 0 without one."""
        is_tag = tf.strings.regex_full_match(text, WRITTEN_TAG + REST)
        code = tf.strings.regex_replace(text, WRITTEN_TAG + REST, r"\2\3", replace_global=False)
        return found(self.tags.targets, tf.where(is_tag, code, ""))


def _or_default(ids, default):
    return tf.where(ids > 0, ids, default)


def written_tag(text, tags):
    """Finds the tag at the start of a text, as `Directions.of` does.

    Args:
        text: str.
        tags: `LanguageTags`.

    Returns:
        (the text without the tag, the code of BCP 47 of its language); (text, None) if there is none.
    """
    written = regex.match(WRITTEN_TAG, text)
    code = written and find_code(spellings_of(tags.targets), written[2] or written[3])
    return (written[1] + text[written.end() :], short_codes(tags.targets)[code]) if code else (text, None)


def found(codes, given):
    """The ids of languages, as `find_code` finds them.

    Args:
        codes: dict from the model's own codes to ids, none of them 0.
        given: string (B,), in any form of `find_code`.

    Returns:
        int32 (B,); 0 for a code that is none of these.
    """
    ids = {form: codes.get(code, 0) for form, code in spellings_of(codes).items()}
    form, chosen = tf.strings.regex_replace(tf.strings.lower(given), "_", "-"), tf.fill(tf.shape(given), -1)
    for rules in ((), *SIMPLER):
        for pattern, simpler in rules:
            form = tf.strings.regex_replace(form, pattern, simpler)
        each = tf.where(form[:, None] == tf.constant([*ids]), tf.constant([*ids.values()]), -1)  # (B, forms)
        chosen = tf.where(chosen < 0, tf.reduce_max(each, axis=1), chosen)
    return tf.maximum(chosen, 0)


def default_tags(tags, number):
    """The ids of `Directions.of` for `number` rows of the default direction; {} for None, a model of one direction."""
    if tags is None:
        return {}
    source_tag, first_id = (tf.fill([number], id) for id in tags.ids(*tags.default))
    return {"source_tag": source_tag} | ({} if tags.place == "source" else {"first_id": first_id})


def tagged(source_ids, tags):
    """Source ids, int32 (P, S), each row behind its tag if `tags` have "source_tag": (P, 1 + S)."""
    return tf.concat([tags["source_tag"][:, None], source_ids], axis=1) if "source_tag" in tags else source_ids


def untagged(alignment, is_source, tags):
    """The weights on the source alone, which then sum to 1: float32 (P, T, 1 + S), bool (P, S) -> (P, T, S)."""
    return unframed(alignment, is_source[:, None], 1) if "source_tag" in tags else alignment


def begun(ids, tags):
    """Inputs of the decoder, int32 (P, ...), with the "first_id" of a row in place of bos if the `tags` have one."""
    return tf.where(ids == BOS_ID, tags["first_id"][:, None], ids) if "first_id" in tags else ids


def begin(start, step, options):
    """The functions of a search whose decoder begins with "first_id" if the options have one; options without tags.

    Args:
        start: function from W to the first state of the model.
        step: the step function of the model, which begins with bos (see `beam_search`).
        options: name -> tensor (P, ...).

    Returns:
        start, step, options.
    """
    left = {name: option for name, option in options.items() if name not in ("source_tag", "first_id")}
    if "first_id" not in options:
        return start, step, left

    def begin_with(width):
        return {"model": start(width), "first_id": options["first_id"]}

    def step_from(ids, parents, position, state):
        logits, model_state = step(begun(ids, state), parents, position, state["model"])
        return logits, {**state, "model": model_state}

    return begin_with, step_from, left
