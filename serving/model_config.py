"""The models and versions to serve: the model config file, and the directories in it."""

import re
from dataclasses import dataclass, field
from pathlib import Path

from tensorflow_serving.config.file_system_storage_path_source_pb2 import FileSystemStoragePathSourceConfig
from tensorflow_serving.config.model_server_config_pb2 import ModelServerConfig, ModelType

from serving.text_config import read_text

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
    config = read_text(path, ModelServerConfig())
    try:
        return model_configs(config)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def model_configs(config):
    """Converts a ModelServerConfig to `ModelConfig`s.

    Raises:
        ValueError: if the configuration is invalid.
    """
    if config.WhichOneof("config") != "model_config_list":
        raise ValueError("a model configuration must have a model_config_list")
    configs = [_model_config(model) for model in config.model_config_list.config]
    names = [config.name for config in configs]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ValueError(f"Illegal to list model {twice[0]} multiple times in config list")
    return configs


def _model_config(model):
    if not model.name:
        raise ValueError(f"a model must have a name. Received: base_path={model.base_path!r}")
    if not re.match(r"/|[a-z0-9]+://", model.base_path):
        wish = f"Expected model {model.name} to have an absolute path or URI"
        raise ValueError(f"{wish}; got base_path()={model.base_path}")
    given = (
        "ModelServerConfig::model_type (deprecated)",
        "ModelServerConfig::model_platform, model name is " + model.name,
    )
    if model.model_type and model.model_platform:
        raise ValueError(f"Illegal setting both {given[0]} and {given[1]}")
    if model.model_type not in (ModelType.MODEL_TYPE_UNSPECIFIED, ModelType.TENSORFLOW):
        raise ValueError(f"ModelServerConfig::model_type choice {model.model_type} not supported.")
    if not model.model_type and not model.model_platform:
        raise ValueError(f"Illegal setting neither {given[0]} nor {given[1]}")
    if model.model_platform not in ("", "tensorflow"):
        raise ValueError(f"Model {model.name} requests unsupported platform {model.model_platform}")
    return ModelConfig(model.name, model.base_path, model.model_version_policy, dict(model.version_labels))


def _is_version(path):
    return re.fullmatch("[0-9]{1,18}", path.name) and path.is_dir()
