"""Small SavedModels, as TensorFlow 1 writes them: any shape, dtype and signature, which the graph alone checks."""

from pathlib import Path

import tensorflow as tf

v1 = tf.compat.v1


def write(base_path, version, **signatures):
    """Writes BASE_PATH/VERSION. A signature is a function, called in the graph, from nothing to (inputs, outputs)."""
    graph, info, definitions = tf.Graph(), v1.saved_model.build_tensor_info, {}
    with graph.as_default(), v1.Session(graph=graph) as session:
        for name, make in signatures.items():
            sides = ({key: info(tensor) for key, tensor in tensors.items()} for tensors in make())
            definitions[name] = v1.saved_model.build_signature_def(*sides, "tensorflow/serving/predict")
        session.run(v1.global_variables_initializer())
        builder = v1.saved_model.Builder(str(Path(base_path) / str(version)))
        builder.add_meta_graph_and_variables(session, ["serve"], definitions)
        builder.save()
    return base_path


def affine(add, shape=(None,), use_resource=True):
    """A signature x -> y = x / 2 + add, with a variable, that of TensorFlow 1 if it is no resource."""

    def make():
        a = v1.get_variable(f"a{add}", initializer=0.5, use_resource=use_resource)
        x = v1.placeholder(tf.float32, shape, "x")
        return {"x": x}, {"y": a * x + add}

    return make


def same(**dtypes):
    """A signature that gives each input back as out_NAME: NAME -> dtype, or (dtype, shape)."""

    def make():
        pairs = {name: kind if isinstance(kind, tuple) else (kind, None) for name, kind in dtypes.items()}
        inputs = {name: v1.placeholder(dtype, shape, name) for name, (dtype, shape) in pairs.items()}
        return inputs, {f"out_{name}": tf.identity(tensor) for name, tensor in inputs.items()}

    return make


def cast(name):
    """A signature of a float input whose output is of the dtype of that name."""

    def make():
        x = v1.placeholder(tf.float32, None, f"to_{name}")
        return {"x": x}, {"y": tf.cast(x, tf.as_dtype(name))}

    return make
