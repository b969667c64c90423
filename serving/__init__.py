"""Serves exported SavedModels by REST and gRPC, as stock TensorFlow Serving does. Needs only the SavedModel."""
