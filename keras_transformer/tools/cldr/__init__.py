"""The default corpus `cldr:en-de`: dates, numbers, prices and names, in two languages, from Unicode's locale data."""

from keras_transformer.tools.cldr.corpus import open_cldr

__all__ = ["open_cldr"]
