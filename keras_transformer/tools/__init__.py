"""The tools: folders on top of the core, each of which can be deleted.

The core imports none of them, and a program of `keras_transformer.cli` imports a tool when a user asks for it.
"""
