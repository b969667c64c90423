"""Several languages of a model of another program, as the `LanguageTags` of a run."""

from keras_transformer.config import UNK_ID
from keras_transformer.languages import own_codes
from keras_transformer.tags import LanguageTags
from keras_transformer.tools.importing.tensors import ImportedModelError

ALL = "all"


def language_tags(place, known, languages, source_lang=None, target_lang=None):
    """The `LanguageTags` of the languages that a user wants.

    Args:
        place: that of `LanguageTags`. With "source", the only source language is that of the default direction. It
            needs no tag.
        known: dict from the codes of the model to the ids of their tags.
        languages: list of codes, in any form of `find_code`; ["all"] for all of `known`.
        source_lang, target_lang: codes of the default direction; None takes the first one of `languages` that is left.

    Raises:
        ImportedModelError: for a model without tags, a language that it does not have, an empty code, or no default
            direction.
    """
    if not known:
        raise ImportedModelError("the model has one direction: leave out `languages`")
    if not all(languages):
        raise ImportedModelError(f"`languages` must be codes, such as en,de. Received: {','.join(languages)!r}")
    if languages == [ALL] and not (source_lang and target_lang):
        raise ImportedModelError("`languages` all needs `source_lang` and `target_lang`, the default direction")
    wanted = [*known] if languages == [ALL] else languages
    *codes, source, target = own_codes(known, (*wanted, source_lang, target_lang))
    source = source or next((code for code in codes if code != target), None)
    target = target or next((code for code in codes if code != source), None)
    if not (source and target) or source == target:
        raise ImportedModelError(
            "the default direction needs two languages: give two codes or more in `languages`, or `source_lang` and "
            f"`target_lang`. Received: source_lang={source_lang}, target_lang={target_lang}, "
            f"languages={','.join(languages)}"
        )
    tagged = [code for code in dict.fromkeys(codes) if code in known or place == "both" or code != source]
    if missing := [code for code in tagged if code not in known]:
        raise ImportedModelError(f"the model has no language {missing[0]}, only {', '.join(sorted(known))}")
    targets = {code: known[code] for code in tagged}
    sources = targets if place == "both" else {source: UNK_ID}
    for name, code, side in (("source_lang", source, sources), ("target_lang", target, targets)):
        if code not in side:
            raise ImportedModelError(
                f"`{name}` must be one of `languages`. Received: {name}={code}, languages={','.join(languages)}"
            )
    return LanguageTags(place, sources, targets, (source, target))
