"""The task of docs/tour/latent_attention.md: if-then recipes in words, and the two services that each connects."""

import itertools

import numpy as np

SERVICES = ("Instagram", "Dropbox", "Facebook", "Twitter", "Evernote", "Flickr", "Tumblr", "Gmail")
VERBS = ("save", "autosave", "post", "copy", "share", "upload", "send", "add", "archive", "publish")
THINGS = ("photos", "pictures", "posts", "files", "notes", "links", "updates")
SOURCES = (
    "{service} {things}",
    "{things} in your {service} folder",
    "{things} from {service}",
    "new {things} on {service}",
    "all your {service} {things}",
    "{things} that you like on {service}",
    "{things} that you add to {service}",
    "{things} sent to your {service} account",
)
TARGETS = (
    "to {service}",
    "to your {service} folder",
    "in {service}",
    "in your {service} folder",
    "to your {service} account",
    "on {service}",
    "with {service}",
)
ORDERS = (
    "{verb} {source} {target}",
    "{verb} {target} {source}",
    "when there are {source} {verb} them {target}",
    "{verb} them {target} when there are {source}",
)
PHRASINGS = tuple(itertools.product(SOURCES, TARGETS, ORDERS))
WORDS = " ".join([*SOURCES, *TARGETS, *ORDERS]).split()
KNOWN = [*(word for word in WORDS if "{" not in word), *SERVICES, *VERBS, *THINGS]
IDS = {word.lower(): i for i, word in enumerate(["", *dict.fromkeys(KNOWN)])}  # 0 is padding

# The two sentences of Liu et al. 2016, their trigger and their action.
OF_THE_PAPER = (
    ("Autosave Instagram photos to your Dropbox folder", "Instagram", "Dropbox"),
    ("Post photos in your Dropbox folder to Instagram", "Dropbox", "Instagram"),
)
PHRASINGS_OF_THE_PAPER = ((SOURCES[0], TARGETS[1], ORDERS[0]), (SOURCES[1], TARGETS[0], ORDERS[0]))


def split_phrasings(seed):
    """Deals the phrasings: two thirds are for training; the others, with those of the paper, are held out.

    Returns:
        two lists of phrasings, each a tuple of a source, a target and an order.
    """
    others = [phrasing for phrasing in PHRASINGS if phrasing not in PHRASINGS_OF_THE_PAPER]
    shuffled = [others[i] for i in np.random.default_rng(seed).permutation(len(others))]
    cut = 2 * len(others) // 3
    return shuffled[:cut], [*shuffled[cut:], *PHRASINGS_OF_THE_PAPER]


def recipes(count, phrasings, seed):
    """Makes recipes in the given phrasings, with two different services each.

    Args:
        count: number of recipes, B.
        phrasings: list of (source, target, order).
        seed: of all choices.

    Returns:
        texts, list of str; triggers and actions int32 (B,), indices into `SERVICES`.
    """
    rng = np.random.default_rng(seed)
    texts, pairs = [], np.array([rng.permutation(len(SERVICES))[:2] for _ in range(count)], "int32")
    for trigger, action in pairs:
        source, target, order = phrasings[rng.integers(len(phrasings))]
        source = source.format(service=SERVICES[trigger], things=rng.choice(THINGS))
        target = target.format(service=SERVICES[action])
        texts.append(order.format(verb=rng.choice(VERBS), source=source, target=target))
    return texts, pairs[:, 0], pairs[:, 1]


def ids_of(texts):
    """The ids of the words of some texts, whatever their case: int32 (B, S), 0 on padding."""
    rows = [[IDS[word] for word in text.lower().split()] for text in texts]
    width = max(map(len, rows))
    return np.array([row + [0] * (width - len(row)) for row in rows], "int32")
