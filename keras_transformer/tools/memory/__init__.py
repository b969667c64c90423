"""A translation memory beside a model: what people have translated before is taken from there, or shown.

`tmx` reads the files, `matches` finds texts in them, and `translation` gives a translator the memory.
"""

from keras_transformer.tools.memory.matches import Match, Memory
from keras_transformer.tools.memory.translation import MemoryTranslator

__all__ = ["Match", "Memory", "MemoryTranslator"]
