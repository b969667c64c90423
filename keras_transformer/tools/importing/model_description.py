"""`model_description.py` of OpenNMT-tf: which Transformer it makes. It is read as a syntax tree. None of it is run."""

import ast

from keras_transformer.tools.importing.tensors import ImportedModelError

MOST_BYTES = 1 << 20
# The arguments of a Transformer of OpenNMT-tf, in their order, and what they are if nobody gives them.
DEFAULTS = {
    "source_inputter": None,
    "target_inputter": None,
    "num_layers": 6,
    "num_units": 512,
    "num_heads": 8,
    "ffn_inner_dim": 2048,
    "dropout": 0.1,
    "attention_dropout": 0.1,
    "ffn_dropout": 0.1,
    "ffn_activation": "relu",
    "mha_bias": True,
    "position_encoder_class": "SinusoidalPositionEncoder",
    "share_embeddings": None,
    "share_encoders": False,
    "maximum_relative_position": None,
    "attention_reduction": None,
    "pre_norm": True,
    "output_layer_bias": True,
}
BIG = {"num_units": 1024, "num_heads": 16, "ffn_inner_dim": 4096}
RELATIVE = {"position_encoder_class": None, "maximum_relative_position": 20}
SCALING = {**BIG, "pre_norm": False, "dropout": 0.3, "ffn_dropout": 0, "output_layer_bias": False}
EOS_BEHIND_SOURCE = {"source_sequence_controls": {"end": True}}  # of the automatic configuration
CATALOGUE = {  # names of --model_type, and what differs from the defaults
    "Transformer": {},
    "TransformerBase": {},
    "TransformerBaseSharedEmbeddings": {},
    "TransformerRelative": RELATIVE,
    "TransformerBaseRelative": RELATIVE,
    "TransformerBig": BIG,
    "TransformerBigSharedEmbeddings": BIG,
    "TransformerBigRelative": {**BIG, **RELATIVE},
    "TransformerTiny": {"num_layers": 2, "num_units": 64, "num_heads": 2, "ffn_inner_dim": 64},
    "ScalingNmtEnDe": {**SCALING, **EOS_BEHIND_SOURCE},
    "ScalingNmtEnFr": {**SCALING, "dropout": 0.1, "attention_dropout": 0, **EOS_BEHIND_SOURCE},
}


class Code(str):
    """The text of an expression that is not a number, a text or a list of them, such as tensorflow.nn.gelu."""

    @property
    def function(self):
        """The name of the function that the expression calls or is, without its module: PositionEmbedder."""
        text = self.partition(":")[2] if self.startswith("lambda") else self
        return text.partition("(")[0].rpartition(".")[2].strip()


def read_description(path):
    """The arguments of the Transformer that a `model_description.py` makes.

    Args:
        path: of the file.

    Returns:
        dict from their names to values, and to `Code` where it is an expression; with `source_sequence_controls` where
        the automatic configuration of a model of the catalogue has them.

    Raises:
        ImportedModelError: if it is no Python, or makes another model.
    """
    try:
        with open(path, "rb") as file:
            text = file.read(MOST_BYTES).decode("utf-8")
        scope = scope_of(ast.parse(text).body, {})
        if "model" not in scope:
            raise Unreadable("no `model`")
        return call(scope["model"], [], {}, scope)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ImportedModelError(f"{path} is not Python, or is damaged: {' '.join(str(error).split())}") from None
    except Unreadable as error:
        known = ", ".join(CATALOGUE)
        raise ImportedModelError(
            f"{path} must make a Transformer of OpenNMT-tf ({known}, or models.Transformer with its arguments as "
            f"numbers). Received: {error}"
        ) from None


class Unreadable(Exception):
    """A part of a description that makes no Transformer, as text."""

    @classmethod
    def of(cls, node):
        """The error for a syntax tree."""
        return cls(" ".join(ast.unparse(node).split())[:80])


def scope_of(statements, outer):
    """The names that statements define, beside those of the scope around them: dict from str to syntax trees."""
    scope = dict(outer)
    for node in statements:
        if isinstance(node, ast.Import):
            scope |= {each.asname: name_of(each.name) for each in node.names if each.asname}
        elif isinstance(node, ast.ImportFrom):
            named = [each for each in node.names if each.name != "*"]
            scope |= {each.asname or each.name: name_of(f"{node.module}.{each.name}") for each in named}
        elif isinstance(node, ast.ClassDef | ast.FunctionDef):
            scope[node.name] = node
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            scope[node.targets[0].id] = scope.get(getattr(node.value, "id", None), node.value)
    return scope


def name_of(dotted):
    """The syntax tree of a dotted name. Raises SyntaxError."""
    return ast.parse(dotted, mode="eval").body


def call(node, positional, named, scope):
    """What a call makes: the arguments of the Transformer.

    Args:
        node: syntax tree of the function or class.
        positional: list of syntax trees, its arguments.
        named: dict from names to syntax trees, its arguments by name.
        scope: dict, the names that are known there.
    """
    if isinstance(node, ast.Name) and node.id in scope and scope[node.id] is not node:
        return call(scope[node.id], positional, named, scope)
    if isinstance(node, ast.Lambda):
        return made_by(node.body, bound(node.args, positional, named, scope))
    if isinstance(node, ast.FunctionDef):
        inner = scope_of(node.body, bound(node.args, positional, named, scope))
        returned = [each.value for each in node.body if isinstance(each, ast.Return)]
        return made_by(returned[-1] if returned else None, inner)
    if isinstance(node, ast.ClassDef):
        return construct(node, positional, named, scope)
    name = Code(written(node, scope)).function
    if name == "get_model_from_catalog" and (positional or "name" in named):
        name = value_of(positional[0] if positional else named["name"], scope)
        positional, named = [], {}
    if not isinstance(name, str) or name not in CATALOGUE:
        raise Unreadable(name)
    given = {**dict(zip(DEFAULTS, positional, strict=False)), **named}
    return {**DEFAULTS, **CATALOGUE[name], **{key: value_of(tree, scope) for key, tree in given.items()}}


def made_by(node, scope):
    """What an expression makes: the arguments of the Transformer."""
    if not isinstance(node, ast.Call):
        raise Unreadable.of(node or ast.Constant(None))
    named = {}
    for each in node.keywords:
        named |= {each.arg: each.value} if each.arg else entries_of(each.value, scope)
    inner = [resolved(each, scope) for each in node.args]
    return call(node.func, inner, {name: resolved(tree, scope) for name, tree in named.items()}, scope)


def entries_of(node, scope):
    """The entries of a dict behind **: dict from names to syntax trees."""
    node = resolved(node, scope)
    if not isinstance(node, ast.Dict) or not all(isinstance(key, ast.Constant) for key in node.keys):
        raise Unreadable.of(node)
    return {key.value: value for key, value in zip(node.keys, node.values, strict=True)}


def construct(node, positional, named, scope):
    """What a class makes: its base class, with the arguments that its `__init__` gives it."""
    if not node.bases:
        raise Unreadable(f"class {node.name}")
    own = next((each for each in node.body if getattr(each, "name", None) == "__init__"), None)
    if own is None:
        return call(node.bases[0], positional, named, scope)
    inner = scope_of(own.body, bound(own.args, [ast.Constant(None), *positional], named, scope))
    for each in ast.walk(own):
        if isinstance(each, ast.Call) and getattr(each.func, "attr", None) == "__init__":
            return made_by(ast.Call(node.bases[0], each.args, each.keywords), inner)
    return call(node.bases[0], [], {}, scope)


def bound(parameters, positional, named, scope):
    """The scope inside a function: its parameters are the arguments, or else their defaults."""
    names = [each.arg for each in (*parameters.posonlyargs, *parameters.args)]
    defaults = dict(zip(reversed(names), reversed(parameters.defaults), strict=False))
    only_named = zip(parameters.kwonlyargs, parameters.kw_defaults, strict=True)
    defaults |= {each.arg: default for each, default in only_named if default is not None}
    own = {**defaults, **dict(zip(names, positional, strict=False)), **named}
    if parameters.kwarg:
        others = {name: tree for name, tree in named.items() if name not in (*names, *defaults)}
        own[parameters.kwarg.arg] = ast.Dict([*map(ast.Constant, others)], [*others.values()])
    return {**scope, **own}


def resolved(node, scope):
    """The syntax tree that a name stands for; another tree as it is."""
    found = scope.get(node.id, node) if isinstance(node, ast.Name) else node
    return node if isinstance(found, ast.ClassDef | ast.FunctionDef) else found


def written(node, scope):
    """An expression as text, with the first part of its name in full: tf.nn.gelu as tensorflow.nn.gelu."""
    text = " ".join(ast.unparse(resolved(node, scope)).split())
    first, dot, rest = text.partition(".")
    full = scope.get(first)
    return f"{ast.unparse(full)}{dot}{rest}" if dot and isinstance(full, ast.Name | ast.Attribute) else text


def value_of(node, scope):
    """The value of an expression: a literal, else `Code`."""
    try:
        return ast.literal_eval(resolved(node, scope))
    except (ValueError, TypeError):
        return Code(written(node, scope))
