"""The files for operators: each parses as what it is for, and what one says fits what the others say."""

import inspect
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path, PurePosixPath

import pytest
import yaml
from google.protobuf import text_format
from tensorflow_serving.config.model_server_config_pb2 import ModelServerConfig

from keras_transformer.export.warmup import BATCH_SIZES
from serving.client import Client
from serving.configuration import read_batching_parameters, read_model_config, read_monitoring
from serving.gateway import parse_arguments
from serving.metrics import Metrics

KIT = Path(__file__).parents[2] / "serving"
REST, GRPC, GATEWAY = 8501, 8500, 5000
METRICS_PATH = "/monitoring/prometheus/metrics"
BATCHING = ("config/batching.config", "config/batching.gpu.config", "config/batching.local.config")
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


def mounts(service):
    """(source, target) of the volumes of a service; the source is without `${VARIABLE:-...}` around its default."""
    volumes = [re.sub(r"\$\{\w+:-(.*?)\}", r"\1", volume) for volume in service.get("volumes", [])]
    return [tuple(volume.split(":")[:2]) for volume in volumes]


def flags(arguments):
    return dict(argument.removeprefix("--").split("=", 1) for argument in arguments)


def targets(service):
    """Where a service mounts its volumes -> the source."""
    return dict(map(reversed, mounts(service)))


def files_of(arguments):
    """The files that flags name."""
    return [PurePosixPath(value) for name, value in flags(arguments).items() if name.endswith("_file")]


def kit_files():
    kinds = (".yml", ".yaml", ".config", ".conf")
    return [path for path in sorted(KIT.rglob("*")) if path.suffix in kinds or path.name == "Dockerfile"]


@pytest.mark.parametrize("path", [*kit_files(), KIT / "prove.sh"], ids=lambda path: str(path.relative_to(KIT)))
def test_each_file_says_what_to_change_and_names_files_that_exist(path):
    assert path.suffix == ".sh" or "What to change" in path.read_text(encoding="utf-8")
    comments = " ".join(re.findall("#(.*)", path.read_text(encoding="utf-8")))
    named = re.findall(r"(?<![\w/.:$}])[\w.][\w./-]*\.(?:ya?ml|config|conf|sh|py|md|txt)\b", comments)
    places = (path.parent, KIT, KIT / "config", KIT.parent)
    assert [name for name in named if not any((place / name).is_file() for place in places)] == []


# Configuration of TensorFlow Serving


def test_labels_are_of_versions_that_are_served_and_the_local_server_reads_them():
    (config,) = read_model_config(KIT / "config/models.config")
    assert {"stable", "canary"} == set(MODEL.version_labels)
    assert set(MODEL.version_labels.values()) <= set(MODEL.model_version_policy.specific.versions)
    assert (config.name, config.base_path, config.labels) == (MODEL.name, MODEL.base_path, dict(MODEL.version_labels))


@pytest.mark.parametrize("name", BATCHING)
def test_warm_up_and_the_largest_allowed_request_find_room(name):
    """TensorFlow Serving does not load an export of which a warm-up request fails."""
    parameters = read_batching_parameters(KIT / name)
    rows = parameters.max_execution_batch_size
    assert parameters.enable_large_batch_splitting and max(BATCH_SIZES) <= rows
    assert rows <= parameters.max_batch_size <= parameters.max_enqueued_batches * rows
    assert inspect.signature(Client).parameters["max_batch_size"].default <= parameters.max_batch_size


def test_the_batches_side_by_side_have_a_thread_and_a_core_each():
    threads = str(read_batching_parameters(KIT / "config/batching.config").num_batch_threads)
    for arguments in (SERVER["command"], CONTAINER["args"]):
        assert flags(arguments)["tensorflow_inter_op_parallelism"] == "-1"  # all ops in the thread of the batch
        assert flags(arguments)["tensorflow_intra_op_parallelism"] == "1"
    assert CONTAINER["resources"]["requests"]["cpu"] == threads


def test_the_counters_are_where_prometheus_looks():
    assert read_monitoring(KIT / "config/monitoring.config") == METRICS_PATH
    (job,) = load("config/prometheus.yml")["scrape_configs"]
    assert job["metrics_path"] == METRICS_PATH
    assert job["static_configs"] == [{"targets": [f"tensorflow-serving:{REST}"]}]
    annotations = KUBERNETES["Deployment"]["spec"]["template"]["metadata"]["annotations"]
    assert (annotations["prometheus.io/path"], annotations["prometheus.io/port"]) == (METRICS_PATH, str(REST))


# Docker Compose


def test_every_file_that_is_mounted_exists_and_the_server_looks_where_it_is():
    for service in [*SERVICES.values(), *GPU_SERVICES.values()]:
        for source, _ in mounts(service):
            if not source.startswith("."):
                assert source in VOLUMES
            elif not source.startswith("../exports"):  # the user's
                assert (KIT / source).exists(), source
    found = [KIT / targets(SERVER)[str(file.parent)] / file.name for file in files_of(SERVER["command"])]
    assert [file.is_file() for file in found] == [True] * 3
    places = [PurePosixPath(mount["mountPath"]) for mount in CONTAINER["volumeMounts"]]
    assert MODEL.base_path in targets(SERVER) and {*places} & {*PurePosixPath(MODEL.base_path).parents}


def test_services_are_closed_to_others_and_depend_on_services():
    for name, service in SERVICES.items():
        assert set(service.get("depends_on", [])) <= set(SERVICES)
        assert int(service["user"].split(":")[0]) > 0, name
        assert service["cap_drop"] == ["ALL"] and service["security_opt"] == ["no-new-privileges:true"], name
    ports = [port.split(":") for service in SERVICES.values() for port in service["ports"]]
    assert {host for host, *_ in ports} == {"127.0.0.1"}
    assert sorted(int(port) for _, port, *_ in ports) == sorted([REST, GRPC, GATEWAY, 8080, 9090, 3000])


def test_every_image_is_pinned_to_a_release():
    """The tags were seen in public repositories, with these very names."""
    images = {image for path in kit_files() for image in re.findall(r"(?:image:|FROM) (\S+)", path.read_text("utf-8"))}
    assert {re.sub(r"\$\{TF_SERVING_TAG:-(.*?)\}", r"\1", image) for image in images} == {
        "tensorflow/serving:2.20.0",
        "tensorflow/serving:2.20.0-gpu",
        "nginxinc/nginx-unprivileged:1.28.0-alpine",
        "prom/prometheus:v3.5.0",
        "grafana/grafana:12.0.0",
        "python:3.12-slim",
        "translation-gateway:1",  # built by the user
    }


def test_health_is_that_of_the_version_in_use_and_sigterm_reaches_the_server():
    path = f"/v1/models/{MODEL.name}/metadata"
    assert f"GET {path} HTTP" in SERVER["healthcheck"]["test"][-1]  # also without labels, as models.config allows
    for probe in ("startupProbe", "readinessProbe"):
        assert CONTAINER[probe]["httpGet"]["path"] == path
    assert CONTAINER["livenessProbe"]["httpGet"]["path"] == f"/v1/models/{MODEL.name}"
    assert SERVER["init"] is True and POD["shareProcessNamespace"] is True  # a shell is the image's first process


def test_the_page_has_one_origin_with_the_api():
    configuration, page = read("config/nginx.conf"), SERVICES["page"]
    upstreams = re.findall(r"set \$\w+ (\S+):(\d+);", configuration)
    assert upstreams == [("tensorflow-serving", str(REST)), ("gateway", str(GATEWAY))]
    assert {host for host, _ in upstreams} <= set(SERVICES)
    assert targets(page)[re.search(r"root (\S+);", configuration)[1]] == "./page"
    assert f"listen {page['ports'][0].split(':')[-1]};" in configuration
    answer = re.search(r"location = /page/models \{.*?return 200 '(.*?)';", configuration, re.DOTALL)[1]
    assert json.loads(answer) == {"models": [MODEL.name]}
    assert configuration.count("{") == configuration.count("}")


def test_the_gateways_ask_the_servers_that_there_are():
    service, (deployment, *others) = SERVICES["gateway"], yaml.safe_load_all(read("kubernetes/gateway.yaml"))
    (pod,) = deployment["spec"]["template"]["spec"]["containers"]
    names = {found["metadata"]["name"] for found in others}
    for arguments, hosts in ((service["command"], SERVICES), (pod["args"], names)):
        found = parse_arguments(arguments)
        scheme, _, address = found.backend.partition("://")
        assert (scheme, address.split(":")[1]) == ("grpc", str(GRPC)) and address.split(":")[0] in hosts
        assert (found.model_name, found.port, str(found.model_base_path)) == (MODEL.name, GATEWAY, MODEL.base_path)
    assert MODEL.base_path in targets(service)
    assert pod["ports"] == [{"name": "http", "containerPort": GATEWAY}]
    assert pod["readinessProbe"]["httpGet"] == {"path": "/health", "port": "http"}


def test_the_script_that_proves_the_kit_is_sound():
    shellcheck = Path(sys.executable).with_name("shellcheck")
    done = subprocess.run([shellcheck, KIT / "prove.sh"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    for path in re.findall(r"http://localhost:(\d+)", read("prove.sh")):
        assert f"127.0.0.1:{path}:" in read("docker-compose.yml")


# Kubernetes


def test_selectors_ports_and_mounts_lead_to_what_there_is():
    assert len(KUBERNETES) == len(MANIFESTS)
    deployment, service = KUBERNETES["Deployment"], KUBERNETES["Service"]["spec"]
    labels = deployment["spec"]["template"]["metadata"]["labels"].items()
    budget = KUBERNETES["PodDisruptionBudget"]["spec"]
    for selector in (
        deployment["spec"]["selector"]["matchLabels"],
        service["selector"],
        budget["selector"]["matchLabels"],
    ):
        assert selector and selector.items() <= labels
    target = KUBERNETES["HorizontalPodAutoscaler"]["spec"]["scaleTargetRef"]
    assert (target["apiVersion"], target["kind"]) == (deployment["apiVersion"], deployment["kind"])
    assert target["name"] == deployment["metadata"]["name"]
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


def environment_of(container):
    return {variable["name"]: variable["value"] for variable in container.get("env", [])}


def arguments_of(container, environment):
    """The container's arguments, `$(NAME)` replaced."""
    return [re.sub(r"\$\((\w+)\)", lambda match: environment[match[1]], argument) for argument in container["args"]]


PATCHES = [yaml.safe_load(entry["patch"]) for entry in load("kubernetes_gpu/kustomization.yaml")["patches"]]
(GPU_CONTAINER,) = next(patch for patch in PATCHES if patch["kind"] == "Deployment")["spec"]["template"]["spec"][
    "containers"
]


def test_kubernetes_starts_the_server_of_compose_with_the_very_files():
    names = CONFIG_MAP["files"]
    assert [name for name in names if not (KIT / "config" / name).is_file()] == []
    (mount,) = (mount["mountPath"] for mount in CONTAINER["volumeMounts"] if mount["name"] == "config")
    assert arguments_of(CONTAINER, environment_of(CONTAINER)) == SERVER["command"]
    for container in (CONTAINER, GPU_CONTAINER):
        files = files_of(arguments_of(CONTAINER, environment_of(container)))
        assert len(files) == 3
        assert {file.name for file in files} <= set(names) and {str(file.parent) for file in files} == {mount}


def test_the_gpu_variants_change_what_there_is():
    assert set(GPU_SERVICES) <= set(SERVICES)
    gpu = GPU_SERVICES["tensorflow-serving"]
    assert gpu["image"] == SERVER["image"] + "-gpu"
    assert mounts(gpu) == [("./config/batching.gpu.config", flags(SERVER["command"])["batching_parameters_file"])]
    assert gpu["deploy"]["resources"]["reservations"]["devices"][0]["capabilities"] == ["gpu"]
    for patch in PATCHES:
        manifest = KUBERNETES[patch["kind"]]
        assert patch["apiVersion"] == manifest["apiVersion"]
        assert patch["metadata"]["name"] == manifest["metadata"]["name"]
    assert GPU_CONTAINER["name"] == CONTAINER["name"] and GPU_CONTAINER["image"] == CONTAINER["image"] + "-gpu"
    assert GPU_CONTAINER["resources"]["limits"]["nvidia.com/gpu"] == 1


@pytest.mark.parametrize("name", ["kubernetes", "kubernetes_gpu"])
def test_kustomizations_lead_to_files_and_to_directories_beside_them(name):
    """Kustomize accepts no directory that has the kustomization in it."""
    for resource in load(f"{name}/kustomization.yaml")["resources"]:
        path = (KIT / name / resource).resolve()
        assert path.is_file() or ((path / "kustomization.yaml").is_file() and path not in (KIT / name).parents)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("kubectl") is None, reason="no kubectl here")
@pytest.mark.parametrize("name", ["kubernetes", "kubernetes_gpu"])
def test_kubectl_builds_the_kustomizations(name):
    done = subprocess.run(["kubectl", "kustomize", KIT / name], capture_output=True, text=True, check=True)
    found = {(each["kind"], each["metadata"]["name"]): each for each in yaml.safe_load_all(done.stdout)}
    data = found["ConfigMap", "translator-config"]["data"]
    assert data == {file: read(f"config/{file}") for file in CONFIG_MAP["files"]}
    assert {("Deployment", "translation-gateway"), ("Service", "translator-pods")} <= set(found)
    spec, is_gpu = found["Deployment", "translator"]["spec"], name == "kubernetes_gpu"
    (container,) = spec["template"]["spec"]["containers"]
    assert environment_of(container)["BATCHING"] == ("batching.gpu.config" if is_gpu else "batching.config")
    assert ("nvidia.com/gpu" in container["resources"]["limits"]) == ("replicas" in spec) == is_gpu
    assert (("HorizontalPodAutoscaler", "translator") in found) != is_gpu


# Grafana


def test_every_series_of_the_dashboard_is_one_that_the_server_shows():
    types = re.findall(r"^# TYPE (\S+) (\S+)$", Metrics().page(), re.MULTILINE)
    exposed = {name + part for name, kind in types for part in (PARTS if kind == "histogram" else ("",))}
    variables = [variable["query"]["query"] for variable in DASHBOARD["templating"]["list"]]
    names = {name for text in [*EXPRESSIONS, *variables] for name in re.findall(r":tensorflow[\w:]+", text)}
    assert len(names) >= 6 and names - exposed == set()
    for expression in EXPRESSIONS:
        assert [expression.count(left) - expression.count(right) for left, right in ("()", "{}", "[]")] == [0, 0, 0]
    panels = DASHBOARD["panels"]
    assert all(panel["description"] for panel in panels) and len({panel["id"] for panel in panels}) == len(panels)
    places = [[panel["gridPos"][key] for key in "xywh"] for panel in panels]
    cells = [(x, y) for left, top, w, h in places for x in range(left, left + w) for y in range(top, top + h)]
    assert len(set(cells)) == len(cells) and max(cells)[0] < 24  # Each panel has a place of its own.


def test_health_checks_are_not_shown_as_predictions():
    """`request_count` counts them as OK, `request_latency` with an API of its own."""
    matchers = [
        (name, braces)
        for expression in EXPRESSIONS
        for name, braces in re.findall(r":tensorflow:serving:(request_count|request_latency)\w*\{(.*?)\}", expression)
    ]
    assert {name for name, _ in matchers} == {"request_count", "request_latency"}
    for name, braces in matchers:
        (status,) = re.findall(r'status(.*?)"(.*?)"', braces) or [("!=", "OK")] * (name == "request_latency")
        assert status == ("!=", "OK") or (status[0] == "=~" and "OK" not in status[1]), braces
        assert ('API=~"[Pp]redict"' in braces) == (name == "request_latency")


def test_grafana_finds_the_dashboard_and_the_dashboard_the_data_source():
    (source,) = load("grafana/provisioning/datasources/prometheus.yml")["datasources"]
    asked = {target["datasource"]["uid"] for panel in DASHBOARD["panels"] for target in panel["targets"]}
    assert asked == {source["uid"]} and source["url"] == "http://prometheus:9090"
    grafana, (provider,) = SERVICES["grafana"], load("grafana/provisioning/dashboards/translation.yml")["providers"]
    assert "prometheus" in SERVICES
    path = provider["options"]["path"]
    assert (KIT / targets(grafana)[path] / "translation.json").is_file()
    home = PurePosixPath(grafana["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"])
    assert str(home.parent) == path and (KIT / "grafana/dashboards" / home.name).is_file()
