"""Exported SavedModels behind REST and gRPC, as stock TensorFlow Serving puts them; knows nothing of how they came."""
