"""The files for operators: each parses as what it is for, and what one says fits what the others say."""

import json
import re
import subprocess
import sys
from pathlib import Path, PurePosixPath

import yaml
from google.protobuf import text_format
from packaging.requirements import Requirement
from tensorflow.core.protobuf.config_pb2 import ConfigProto
from tensorflow_serving.config.model_server_config_pb2 import ModelServerConfig

from serving.configuration import read_message
from serving.metrics import Metrics
from tests.installed import WITHOUT, modules_beside

KIT = Path(__file__).parents[2] / "serving"
REST, GRPC, GATEWAY = 8501, 8500, 5000
PARTS = ("_bucket", "_sum", "_count")  # of a histogram


def read(name):
    return (KIT / name).read_text(encoding="utf-8")


def load(name):
    return yaml.safe_load(read(name))


(MODEL,) = text_format.Parse(read("config/models.config"), ModelServerConfig()).model_config_list.config
VOLUMES, SERVICES = (load("docker-compose.yml")[part] for part in ("volumes", "services"))
GPU_SERVICES = load("docker-compose.gpu.yml")["services"]
SERVER = SERVICES["tensorflow-serving"]
MANIFESTS = list(yaml.safe_load_all(read("kubernetes/translator.yaml")))
KUBERNETES = {manifest["kind"]: manifest for manifest in MANIFESTS}
POD = KUBERNETES["Deployment"]["spec"]["template"]["spec"]
(CONTAINER,) = POD["containers"]
(CONFIG_MAP,) = load("config/kustomization.yaml")["configMapGenerator"]
DASHBOARD = json.loads(read("grafana/dashboards/translation.json"))
EXPRESSIONS = [target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]]


def targets(service):
    """Where a service mounts its volumes -> the source, without `${VARIABLE:-...}` around its default."""
    volumes = [re.sub(r"\$\{\w+:-(.*?)\}", r"\1", volume) for volume in service.get("volumes", [])]
    return {volume.split(":")[1]: volume.split(":")[0] for volume in volumes}


def files_of(arguments):
    """The files that flags name."""
    given = (argument.removeprefix("--").split("=", 1) for argument in arguments)
    return [PurePosixPath(value) for name, value in given if name.endswith("_file")]


def test_every_file_that_is_mounted_exists_and_the_server_looks_where_it_is():
    for service in [*SERVICES.values(), *GPU_SERVICES.values()]:
        for source in targets(service).values():
            is_users = source.startswith("../exports")
            assert is_users or ((KIT / source).exists() if source.startswith(".") else source in VOLUMES), source
    found = [KIT / targets(SERVER)[str(file.parent)] / file.name for file in files_of(SERVER["command"])]
    assert [file.is_file() for file in found] == [True] * 4
    places = [PurePosixPath(mount["mountPath"]) for mount in CONTAINER["volumeMounts"]]
    assert MODEL.base_path in targets(SERVER) and {*places} & {*PurePosixPath(MODEL.base_path).parents}


def test_services_are_closed_to_others_and_the_image_is_made_of_what_docker_is_given():
    for name, service in SERVICES.items():
        assert set(service.get("depends_on", [])) <= set(SERVICES) and int(service["user"].split(":")[0]) > 0, name
        assert service["mem_limit"] and service["logging"]["options"]["max-size"], name
        assert service["cap_drop"] == ["ALL"] and service["security_opt"] == ["no-new-privileges:true"], name
    ports = [port.split(":") for service in SERVICES.values() for port in service["ports"]]
    assert {host for host, *_ in ports} == {"127.0.0.1"}
    assert sorted(int(port) for _, port, *_ in ports) == sorted([REST, GRPC, GATEWAY, 8080, 9090, 3000])
    copied = re.findall(r"^COPY (\S+) \S+$", read("Dockerfile"), re.MULTILINE)
    given = [line.removeprefix("!") for line in read("Dockerfile.dockerignore").splitlines() if line.startswith("!")]
    assert sorted(copied) == sorted(given) and all([*KIT.parent.glob(pattern)] for pattern in copied)
    build = SERVICES["gateway"]["build"]
    assert (KIT / build["context"]).samefile(KIT.parent) and KIT.parent / build["dockerfile"] == KIT / "Dockerfile"


OF_ITS_PACKAGES = """
import keras_transformer.cli.document_api
from keras_transformer.tools.documents.files import FORMATS, check_format, translate_bytes

class Upper:
    def translate(self, texts, on_progress=None):
        return [text.upper() for text in texts]

for format in FORMATS:
    check_format(format)
print(*(translate_bytes(Upper(), b"<p>one</p>", format).decode() for format in ("html", "markdown")))
"""


def test_the_packages_of_the_image_are_those_of_the_project_and_enough_for_documents():
    added = re.findall(r"'(\S+>=\S+)'", read("Dockerfile"))
    assert [each for each in added if f'"{each}"' not in (KIT.parent / "pyproject.toml").read_text("utf-8")] == []
    lines = [line for line in read("requirements.txt").splitlines() if not line.startswith("#")]
    missing = modules_beside(Requirement(line).name for line in [*lines, *added])
    missing -= {"tensorflow", "tensorflow_serving", "keras_transformer", "serving"}  # copied without their packages
    command = [sys.executable, "-c", f"MISSING = {missing}{WITHOUT}{OF_ITS_PACKAGES}"]
    ran = subprocess.run(command, cwd=KIT.parent, capture_output=True, text=True, timeout=120)
    assert ran.returncode == 0 and "<p>ONE</p>" in ran.stdout, ran.stderr
    assert {"keras", "pytest"} <= missing


def test_selectors_ports_and_mounts_lead_to_what_there_is():
    assert len(KUBERNETES) == len(MANIFESTS)
    deployment, service = KUBERNETES["Deployment"], KUBERNETES["Service"]["spec"]
    labels = deployment["spec"]["template"]["metadata"]["labels"].items()
    selectors = [KUBERNETES[kind]["spec"]["selector"]["matchLabels"] for kind in ("Deployment", "PodDisruptionBudget")]
    for selector in (*selectors, service["selector"]):
        assert selector and selector.items() <= labels
    target = {"name": deployment["metadata"]["name"], "kind": "Deployment", "apiVersion": deployment["apiVersion"]}
    assert KUBERNETES["HorizontalPodAutoscaler"]["spec"]["scaleTargetRef"] == target
    assert "replicas" not in deployment["spec"]  # or each `apply` would undo what the autoscaler did
    ports = {port["name"]: port["containerPort"] for port in CONTAINER["ports"]}
    assert ports == {"grpc": GRPC, "rest": REST}
    assert all(ports[port["targetPort"]] == port["port"] for port in service["ports"])
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert CONTAINER[probe]["httpGet"]["port"] == "rest"
    volumes = {volume["name"]: volume for volume in POD["volumes"]}
    assert {mount["name"] for mount in CONTAINER["volumeMounts"]} == set(volumes)
    claim = KUBERNETES["PersistentVolumeClaim"]["metadata"]["name"]
    assert volumes["models"]["persistentVolumeClaim"]["claimName"] == claim
    assert volumes["config"]["configMap"]["name"] == CONFIG_MAP["name"]
    # The processes of the gateway have their sockets in /tmp.
    gateway = next(yaml.safe_load_all(read("kubernetes/gateway.yaml")))["spec"]["template"]["spec"]
    (container,) = gateway["containers"]
    assert container["securityContext"]["readOnlyRootFilesystem"]
    mounted = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}
    assert {"name": mounted["/tmp"], "emptyDir": {}} in gateway["volumes"]


def environment_of(container):
    return {variable["name"]: variable["value"] for variable in container.get("env", [])}


def arguments_in(environment):
    """The arguments of the container, `$(NAME)` replaced."""
    return [re.sub(r"\$\((\w+)\)", lambda match: environment[match[1]], argument) for argument in CONTAINER["args"]]


PATCHES = [yaml.safe_load(entry["patch"]) for entry in load("kubernetes_gpu/kustomization.yaml")["patches"]]
(GPU_DEPLOYMENT,) = (patch["spec"] for patch in PATCHES if patch["kind"] == "Deployment")
(GPU_CONTAINER,) = GPU_DEPLOYMENT["template"]["spec"]["containers"]


def test_kubernetes_starts_the_server_of_compose_with_the_very_files_and_a_session_for_its_device():
    names = CONFIG_MAP["files"]
    assert [name for name in names if not (KIT / "config" / name).is_file()] == []
    (mount,) = (mount["mountPath"] for mount in CONTAINER["volumeMounts"] if mount["name"] == "config")
    assert arguments_in(environment_of(CONTAINER)) == SERVER["command"]
    for container, session, executor in (
        (CONTAINER, "session.config", "SINGLE_THREADED_EXECUTOR"),
        (GPU_CONTAINER, "session.gpu.config", ""),
    ):
        assert environment_of(container)["SESSION"] == session
        files = files_of(arguments_in(environment_of(container)))
        assert len(files) == 4
        assert {file.name for file in files} <= set(names) and {str(file.parent) for file in files} == {mount}
        assert read_message(KIT / "config" / session, ConfigProto()).experimental.executor_type == executor
    assert targets(GPU_SERVICES["tensorflow-serving"])["/config/session.config"] == "./config/session.gpu.config"


def test_every_series_of_the_dashboard_is_one_that_the_server_shows():
    types = re.findall(r"^# TYPE (\S+) (\S+)$", Metrics().page(), re.MULTILINE)
    exposed = {name + part for name, kind in types for part in (PARTS if kind == "histogram" else ("",))}
    variables = [variable["query"]["query"] for variable in DASHBOARD["templating"]["list"]]
    names = {name for text in [*EXPRESSIONS, *variables] for name in re.findall(r":tensorflow[\w:]+", text)}
    assert len(names) >= 6 and names - exposed == set() and all(panel["description"] for panel in DASHBOARD["panels"])
