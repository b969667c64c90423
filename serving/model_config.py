"""The models and versions to serve: the model config file, and the directories in it."""

import re
from dataclasses import dataclass, field
from pathlib import Path

from google.protobuf import text_format
from tensorflow_serving.config.file_system_storage_path_source_pb2 import FileSystemStoragePathSourceConfig
from tensorflow_serving.config.model_server_config_pb2 import ModelServerConfig

VersionPolicy = FileSystemStoragePathSourceConfig.ServableVersionPolicy


@dataclass(frozen=True)
class ModelConfig:
    """The configuration of one model.

    Attributes:
        name: str, the model's name for clients.
        base_path: str, the directory of its versions.
        policy: `VersionPolicy`: `latest` (the default, one version), `all` or `specific`.
        labels: dict label -> version.
    """

    name: str
    base_path: str
    policy: VersionPolicy = field(default_factory=VersionPolicy)
    labels: dict = field(default_factory=dict)

    def wanted(self):
        """Returns version -> directory of the versions to serve.

        Raises:
            OSError: if `base_path` cannot be read.
        """
        found = {int(path.name): path for path in sorted(Path(self.base_path).iterdir()) if _is_version(path)}
        kind = self.policy.WhichOneof("policy_choice") or "latest"
        if kind == "all":
            return found
        if kind == "specific":
            return {version: path for version, path in found.items() if version in self.policy.specific.versions}
        newest = sorted(found)[-(self.policy.latest.num_versions or 1) :]
        return {version: found[version] for version in newest}


def read_model_config(path):
    """Reads the `ModelConfig`s of a --model_config_file, a ModelServerConfig in text form.

    Raises:
        OSError: if the file cannot be read.
        ValueError: if the file is no ModelServerConfig, with the line, or if the configuration is invalid.
    """
    try:
        config = text_format.Parse(Path(path).read_text(encoding="utf-8"), ModelServerConfig())
    except (text_format.ParseError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} must be a ModelServerConfig in text form. Line {error}") from None
    try:
        return model_configs(config)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def model_configs(config):
    """Converts a ModelServerConfig to `ModelConfig`s.

    Raises:
        ValueError: if the configuration is invalid.
    """
    if config.WhichOneof("config") != "model_config_list" or not config.model_config_list.config:
        raise ValueError("a model configuration must have a model_config_list with a config for each model")
    configs = [_model_config(model) for model in config.model_config_list.config]
    check_names(configs)
    return configs


def check_names(configs):
    """Raises ValueError if two models share a name."""
    names = [config.name for config in configs]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ValueError(f"the names of models must differ. Received twice: {', '.join(twice)}")


def check_change(old, new):
    """Raises ValueError if a server of the `ModelConfig`s `old` cannot change to `new`."""
    check_names(new)
    base_paths = {config.name: config.base_path for config in old}
    for config in new:
        if base_paths.get(config.name, config.base_path) != config.base_path:
            raise ValueError(
                f"model {config.name} must keep its base_path, {base_paths[config.name]}, while it is served: leave it "
                f"out of the configuration first. Received: {config.base_path}"
            )


def _model_config(model):
    if not model.name or not model.base_path:
        raise ValueError(
            f"a model must have a name and a base_path. Received: name={model.name!r}, base_path={model.base_path!r}"
        )
    if model.model_platform not in ("", "tensorflow"):
        raise ValueError(f"model_platform must be tensorflow. Received: {model.model_platform!r} for {model.name}")
    return ModelConfig(model.name, model.base_path, model.model_version_policy, dict(model.version_labels))


def _is_version(path):
    return re.fullmatch("[0-9]{1,18}", path.name) and path.is_dir()
