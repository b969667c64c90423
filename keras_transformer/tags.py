"""Tags: the tokens that tell a model of many languages which languages it translates between.

A run of one direction has none. A run of several keeps them in `languages.json`.
"""

import json
from dataclasses import dataclass, replace
from pathlib import Path

from keras_transformer.config import BOS_ID
from keras_transformer.errors import UserError
from keras_transformer.files import reading, write_whole
from keras_transformer.languages import find_code, language_of, own_codes, short_codes, spellings_of

TAGS_FILE = "languages.json"  # in the directory of a run


@dataclass(frozen=True)
class LanguageTags:
    """The languages of a model, by its own codes, and the id of the tag of each.

    `place` says where tags stand:

    - "source": the tag of the target language is the first token of the source (Johnson et al. 2017).
    - "both": the tag of the source language is the first token of the source, and the decoder begins with the tag of
      the target language in place of bos (M2M-100, Fan et al. 2020).

    Attributes:
        place: str.
        sources: dict from the code of each source language to the id of its tag. With "source", the ids do nothing.
        targets: dict from the code of each target language to the id of its tag.
        default: (source, target), codes of the direction of a text for which no languages are given.
    """

    place: str
    sources: dict
    targets: dict
    default: tuple

    def ids(self, source_lang, target_lang):
        """The ids for a direction: (first token of the source, first token of the decoder), two int."""
        if self.place == "source":
            return self.targets[target_lang], BOS_ID
        return self.sources[source_lang], self.targets[target_lang]

    def find(self, source_lang=None, target_lang=None):
        """The model's own codes for codes that a user gives, in any form of `find_code`; None takes the default.

        Returns:
            (source, target), two str.

        Raises:
            UserError: for a language that the model does not have. It lists those that it has.
        """
        found = []
        sides = (("source_lang", source_lang, self.sources), ("target_lang", target_lang, self.targets))
        for (name, given, codes), default in zip(sides, self.default, strict=True):
            code = find_code(spellings_of(codes), checked(given)) if given else default
            if code is None:
                known = ", ".join(sorted(short_codes(codes).values()))
                raise UserError(f"the model has no `{name}` {given}, only {known}")
            found.append(code)
        return tuple(found)

    @property
    def default_codes(self):
        """(source, target), the default as codes of BCP 47."""
        return tuple(short_codes(codes)[own] for codes, own in zip(self.sides.values(), self.default, strict=True))

    @property
    def sides(self):
        """{"sources": ..., "targets": ...}, both as the attributes."""
        return {"sources": self.sources, "targets": self.targets}

    @property
    def _tagged(self):
        """The languages that have a tag: dict from code to id."""
        return self.targets | (self.sources if self.place == "both" else {})

    def untagged(self, directions):
        """The codes of the languages of some directions that have no tag yet.

        Args:
            directions: iterable of (source, target), codes in any form of `find_code`.

        Returns:
            list of str.
        """
        given = [code for each in directions for code in (each if self.place == "both" else each[1:])]
        own = dict.fromkeys(own_codes(self.sources | self.targets, given))
        return [code for code in own if code not in self._tagged]

    def extended(self, directions, id_of):
        """The `LanguageTags` with the languages of some directions, whose first one is the default.

        Args:
            directions: those of `untagged`.
            id_of: function from a piece to its id, in a tokenizer with the `piece_of` each of `untagged`.
        """
        tagged, sides = self._tagged, []
        for known, given in zip(self.sides.values(), zip(*directions, strict=True), strict=True):
            codes = dict.fromkeys(own_codes(self.sources | self.targets, given))
            sides.append(known | {code: tagged[code] if code in tagged else id_of(piece_of(code)) for code in codes})
        complete = LanguageTags(self.place, *sides, (None, None))
        return replace(complete, default=complete.find(*directions[0]))

    def describe(self):
        """The languages and the place of the tags, for people: a str."""
        sources, targets = (", ".join(short_codes(codes).values()) for codes in self.sides.values())
        return f"from {sources} to {targets}; tags: {self.place}"

    def listed(self):
        """The languages for the manifest of an export: dict of {short code: own code} of each side, and "default"."""
        listed = {side: {tag: code for code, tag in short_codes(codes).items()} for side, codes in self.sides.items()}
        return {**listed, "default": list(self.default_codes)}

    def save(self, directory):
        """Writes `languages.json` into a directory."""
        about = {"place": self.place, "default": self.default, **self.sides}
        text = json.dumps(about, indent=1)
        write_whole(Path(directory, TAGS_FILE), lambda path: path.write_text(text, encoding="utf-8"))


def load_tags(directory):
    """The `LanguageTags` of a run; None for a run of one direction.

    Raises:
        FileError: if the file cannot be read or is damaged.
    """
    path = Path(directory, TAGS_FILE)
    if not path.exists():
        return None
    with reading(path):
        about = json.loads(path.read_text(encoding="utf-8"))
        tags = LanguageTags(about["place"], about["sources"], about["targets"], tuple(about["default"]))
        tags.ids(*tags.default)
    return tags


def direction_of(translator):
    """(source, target), the codes of a translator's languages by default; None for each that is not known."""
    tags = getattr(translator, "tags", None)
    return tags.default_codes if tags else getattr(translator, "languages", (None, None))


def piece_of(code):
    """The piece that tags a language in our own tokenizers: `<2de>`."""
    return f"<2{code}>"


def checked(code):
    """Returns the code of a language. Raises UserError for a value that is no str."""
    if not isinstance(code, str):
        raise UserError(f"the code of a language must be a str, such as fr. Received: {code!r}")
    return code


def check_direction(languages, source_lang=None, target_lang=None):
    """Checks languages that a user gives to a model of one direction.

    Args:
        languages: (source, target), the codes of the model; None for each that is not known. Every code is right for a
            language that is not known, or whose code CLDR does not know.
        source_lang, target_lang: codes that a user gives; None for none.

    Raises:
        UserError: for another language than that of the model.
    """
    given = {"source_lang": source_lang, "target_lang": target_lang}
    for (name, code), own in zip(given.items(), languages, strict=True):
        if code and language_of(own) and find_code(spellings_of([own]), checked(code)) is None:
            raise UserError(f"the model has one direction, and its `{name}` is {own}. Received: {name}={code}")
