"""A SavedModel's graph in a sixth of its bytes: nothing twice, nothing unused, and short names.

TensorFlow writes down every node that Python made, under a name that says where it comes from and with the shapes of
its results: for a small model that is more than half as much as its weights. What is asked for by name stays: the
signatures with their inputs and outputs, the variables, and the restore of their values. A Session that has loaded the
SavedModel cannot save it again; nobody does.

A reference to a node, as other nodes have it for an input, is "name", "name:0", "name:output:0" or "^name".
"""

import itertools
from collections import Counter
from pathlib import Path
from string import ascii_letters, ascii_lowercase

from tensorflow.core.framework.types_pb2 import DT_RESOURCE
from tensorflow.core.protobuf.saved_model_pb2 import SavedModel

NOTES = (  # on nodes, for those who build a graph or look at it
    "_class",
    "_collective_manager_ids",
    "_gradient_op_type",
    "_has_manual_control_dependencies",
    "_output_shapes",
    "_read_only_resource_inputs",
    "config_proto",
    "debug_name",
    "output_shapes",
)
EFFECTS = ("Assert", "AssignVariableOp", "PrintV2")  # operations that are there for more than their results


def compact_saved_model(directory):
    """Makes the graph of the SavedModel in a directory smaller; it answers as before."""
    path = Path(directory) / "saved_model.pb"
    model = SavedModel.FromString(path.read_bytes())
    for meta_graph in model.meta_graphs:
        compact(meta_graph)
    path.write_bytes(model.SerializeToString(deterministic=True))
    (Path(directory) / "fingerprint.pb").unlink(missing_ok=True)  # of the graph as it was


def compact(meta_graph):
    """Makes a MetaGraphDef smaller, in place."""
    stateful = {op.name for op in meta_graph.meta_info_def.stripped_op_list.op if op.is_stateful}
    nodes, functions = meta_graph.graph_def.node, meta_graph.graph_def.library.function
    for function in functions:
        drop_notes(function.node_def)
        drop_notes_on_arguments(function)
        forget_order(function)
        bypass_identities(function)
        merge_equal(function, stateful)
        keep_needed(function.node_def, [*function.ret.values(), *function.control_ret.values()])
        shorten_names(function)
    asked_for = names_asked_for(meta_graph)
    drop_notes(nodes)
    keep_needed(nodes, asked_for)
    create_resources_in_functions(nodes, functions)
    others = [node for node in nodes if node.name not in asked_for]
    names = shortened((node.name for node in others), asked_for)
    for node in others:
        node.name = names[node.name]
    for node in nodes:
        refer(node, names)
        if node.op == "VarHandleOp":
            node.attr["shared_name"].s = node.name.encode()  # what a Session calls the variable; restoring uses handles
    keep_called(functions, nodes, meta_graph.object_graph_def.concrete_functions)
    shorten_function_names(functions, nodes, meta_graph.object_graph_def.concrete_functions)
    meta_graph.meta_info_def.ClearField("stripped_op_list")  # for who would leave out what is the default; that is done


def drop_notes(nodes):
    """Removes attributes that no kernel reads: TensorFlow finds the shapes again where it wants them."""
    for node in nodes:
        for note in NOTES:
            node.attr.pop(note, None)


def drop_notes_on_arguments(function):
    """Removes what a FunctionDef says of the shapes of its arguments, and of the variables behind them."""
    function.arg_attr.clear()
    function.attr.pop("_input_shapes", None)
    for argument in (*function.signature.input_arg, *function.signature.output_arg):
        argument.ClearField("handle_data")


def forget_order(function):
    """Has no node of a FunctionDef wait for another but for its result, unless one of them has other effects.

    TensorFlow lets whatever comes after a variable is read wait for that, since it might write to it. What waits for
    the whole function still waits for the functions and loops in it: without that, TensorFlow takes three times as long
    to prepare a signature.
    """
    ops = {node.name: node.op for node in function.node_def}
    if set(EFFECTS) & set(ops.values()):
        return
    for node in function.node_def:
        replace(node.input, [reference for reference in node.input if not reference.startswith("^")])
    for control, name in dict(function.control_ret).items():
        if ops[name] == "ReadVariableOp":
            del function.control_ret[control]
            function.signature.control_output.remove(control)


def bypass_identities(function):
    """Has whoever takes the output of an Identity or IdentityN of a FunctionDef take its input instead.

    They stand for Python's assignments and custom gradients; one that waits for other nodes has a purpose.
    """
    inputs = {}
    for node in function.node_def:
        replace(node.input, [inputs.get(reference, reference) for reference in node.input])
        if node.op in ("Identity", "IdentityN") and not any(reference.startswith("^") for reference in node.input):
            inputs |= {f"{node.name}:output:{i}": reference for i, reference in enumerate(node.input)}
    for result, reference in dict(function.ret).items():
        function.ret[result] = inputs.get(reference, reference)


def merge_equal(function, stateful):
    """Keeps one of the nodes of a FunctionDef that do the same with the same inputs, but for `stateful` operations."""
    first, same, kept = {}, {}, []
    for node in function.node_def:
        refer(node, same)
        work = (node.op, *node.input, *attributes_of(node))
        if node.op in stateful or first.setdefault(work, node.name) == node.name:
            kept.append(node)
        else:
            same[node.name] = first[work]
    replace(function.node_def, kept)
    substitute(function, same)


def keep_needed(nodes, references):
    """Keeps the nodes that are referred to, and those that they depend on."""
    inputs = {node.name: node.input for node in nodes}
    needed, left = set(), [name_of(reference) for reference in references]
    while left:
        name = left.pop()
        if name in inputs and name not in needed:
            needed.add(name)
            left += map(name_of, inputs[name])
    replace(nodes, [node for node in nodes if node.name in needed])


def shorten_names(function):
    """Gives nodes, arguments and results of a FunctionDef, which nobody asks for by name, names of few letters.

    The nodes that are referred to most have the shortest.
    """
    signature = function.signature
    names = shortened((argument.name for argument in signature.input_arg), letters=ascii_lowercase)
    times = Counter(name_of(reference) for node in function.node_def for reference in node.input)
    nodes = sorted((node.name for node in function.node_def), key=lambda name: -times[name])
    names |= shortened(nodes, taken=set(names.values()))
    for each in (*signature.input_arg, *function.node_def):
        each.name = names[each.name]
    substitute(function, names)

    results = shortened((argument.name for argument in signature.output_arg), letters=ascii_lowercase)
    for argument in signature.output_arg:
        argument.name = results[argument.name]
    rename_keys(function.ret, results)
    controls = shortened(signature.control_output)
    replace(signature.control_output, controls.values())
    rename_keys(function.control_ret, controls)


def create_resources_in_functions(nodes, functions):
    """Has the nodes of a graph that create a resource call the function that creates the same, if there is one.

    The tokenizer's model, an attribute of such a node, is then in the file once.
    """
    creators = {
        (node.op, *attributes_of(node)): function.signature.name
        for function in functions
        for node in function.node_def
        if [argument.type for argument in function.signature.output_arg] == [DT_RESOURCE] and not node.input
    }
    for node in nodes:
        creator = creators.get((node.op, *attributes_of(node)))
        if creator is not None:
            node.op = "StatefulPartitionedCall"
            node.attr.clear()
            node.attr["f"].func.name = creator
            node.attr["Tin"].list.SetInParent()
            node.attr["Tout"].list.type.append(DT_RESOURCE)


def names_asked_for(meta_graph):
    """The nodes that whoever loads a MetaGraphDef asks for by name: of signatures, of the restore, of initialisers."""
    tensors = [
        tensor.name
        for signature in meta_graph.signature_def.values()
        for tensor in (*signature.inputs.values(), *signature.outputs.values())
    ]
    saver = meta_graph.saver_def
    collected = [name for collection in meta_graph.collection_def.values() for name in collection.node_list.value]
    return {name_of(name) for name in (*tensors, saver.filename_tensor_name, saver.restore_op_name, *collected)}


def keep_called(functions, nodes, asked_for):
    """Keeps the functions that are `asked_for` by name or that nodes call, and those that these call."""
    calls = {function.signature.name: [call.name for call in calls_of(function.node_def)] for function in functions}
    called, left = set(), [*asked_for, *(call.name for call in calls_of(nodes))]
    while left:
        name = left.pop()
        if name not in called:
            called.add(name)
            left += calls[name]
    replace(functions, [function for function in functions if function.signature.name in called])


def shorten_function_names(functions, nodes, asked_for):
    """Gives functions that nobody asks for by name names of few letters."""
    others = (function.signature.name for function in functions if function.signature.name not in asked_for)
    names = shortened(others, asked_for, ascii_lowercase)  # operations begin with a capital
    for function in functions:
        function.signature.name = names.get(function.signature.name, function.signature.name)
    for some_nodes in (nodes, *(function.node_def for function in functions)):
        for call in calls_of(some_nodes):
            call.name = names.get(call.name, call.name)


def calls_of(nodes):
    """Where nodes say which functions they call, a list of NameAttrList."""
    values = [value for node in nodes for value in node.attr.values()]
    return [call for value in values for call in (value.func, *value.list.func) if call.name]


def attributes_of(node):
    """What tells a node from another of the same operation, a list that can be compared."""
    return sorted((name, value.SerializeToString(deterministic=True)) for name, value in node.attr.items())


def substitute(function, names):
    """Has all that refers to a node of a FunctionDef refer to the one of the name in `names`, if there is one."""
    for node in function.node_def:
        refer(node, names)
    for results in (function.ret, function.control_ret):
        for result, reference in dict(results).items():
            results[result] = renamed(reference, names)


def refer(node, names):
    """As `substitute`, for the inputs of one node."""
    replace(node.input, [renamed(reference, names) for reference in node.input])


def renamed(reference, names):
    """A reference to "x:output:0" as one to "y:output:0" if `names` has y for x."""
    name = name_of(reference)
    return reference.replace(name, names.get(name, name), 1)


def name_of(reference):
    """The name of the node that is referred to."""
    return reference.removeprefix("^").partition(":")[0]


def replace(repeated, values):
    """Sets a repeated field of a message."""
    values = list(values)
    del repeated[:]
    repeated.extend(values)


def rename_keys(mapping, names):
    """Renames all keys of a map field."""
    items = {names[key]: value for key, value in mapping.items()}
    mapping.clear()
    mapping.update(items)


def shortened(names, taken=(), letters=ascii_letters):
    """Each of the names -> a, b, ..., Z, aa, ab, ..., but for those taken."""
    words = ("".join(word) for n in itertools.count(1) for word in itertools.product(letters, repeat=n))
    free = (word for word in words if word not in taken)
    return {name: next(free) for name in names}
