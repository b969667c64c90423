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
TAGS = ("source_tag", "first_id")  # the options of `Directions.of`
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
        written = written_ids(text, tags.targets)
        text = without_tag(text, written)
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
        is_target = (target_lang == "") | (found(self.tags.targets, target_lang) > 0)
        return marked_where(outputs, is_source & (is_target | (written_ids(text, self.tags.targets) > 0)))


class OwnTag:
    """Takes its own tag off a text, for a model of one direction that reads this tag before every text: OPUS-MT.

    Args:
        targets: dict from the code of the tag to its id.
    """

    def __init__(self, targets):
        self.targets = targets

    @classmethod
    def of_model(cls, model, tokenizer):
        """The `OwnTag` in the `frame` of a model; None if there is none. `tokenizer` is that of the source."""
        ids = getattr(model, "source_frame", None) and model.source_frame.before
        written = regex.fullmatch(f"▁?>>({CODE})<<", "".join(tokenizer.visible_pieces(ids or [])))
        return written and cls({written[1]: ids[-1]})

    def of(self, text, **options):
        """The inputs of a signature without this tag at the start of texts: dict of tensors."""
        return {"text": without_tag(text, written_ids(text, self.targets)), **options}

    def marked(self, outputs, text, **_):
        """As `Directions.marked`, in rows whose text begins with the tag >>xyz<< of another language."""
        is_other = tf.strings.regex_full_match(text, rf"\A{BLANK}*>>{CODE}<<{REST}")
        return marked_where(outputs, ~is_other | (written_ids(text, self.targets) > 0))


def marked_where(outputs, is_known):
    """The outputs of a signature, with the score `UNKNOWN_LANGUAGE` in rows that are not `is_known`, bool (B,)."""
    marked = {}
    for name in {"score", "scores"} & outputs.keys():
        score = outputs[name]
        marked[name] = tf.where(is_known if score.shape.rank == 1 else is_known[:, None], score, UNKNOWN_LANGUAGE)
    return outputs | marked


def written_ids(text, targets):
    """The ids of the languages of the tags at the start of texts: string (B,) -> int32 (B,), 0 without one."""
    is_tag = tf.strings.regex_full_match(text, WRITTEN_TAG + REST)
    code = tf.strings.regex_replace(text, WRITTEN_TAG + REST, r"\2\3", replace_global=False)
    return found(targets, tf.where(is_tag, code, ""))


def without_tag(text, written):
    """The texts without the tag that they begin with, where the `written_ids` are not 0."""
    return tf.where(written > 0, tf.strings.regex_replace(text, WRITTEN_TAG, r"\1", replace_global=False), text)


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


def begins_with_tag(step):
    """The step function of a search whose decoder begins with the "first_id" of its state in place of bos.

    Args:
        step: that of the model, whose state stands under "model" (see `beam_search`).
    """

    def step_from(ids, parents, position, state):
        logits, model_state = step(begun(ids, state), parents, position, state["model"])
        return logits, {**state, "model": model_state}

    return step_from
