"""docs/job.yaml: what one part of it says fits what the others say, and the flags are those of train.py."""

from pathlib import Path

import yaml

from keras_transformer.cli.train import parse_training
from keras_transformer.presets import worker_addresses

SERVICE, JOB = yaml.safe_load_all((Path(__file__).parents[1] / "docs" / "job.yaml").read_text(encoding="utf-8"))
POD = JOB["spec"]["template"]["spec"]
(CONTAINER,) = POD["containers"]


def test_every_pod_is_an_address_of_workers_that_the_service_names_and_starts_again_after_a_failure():
    config, _ = parse_training(CONTAINER["command"][2:], "trains")
    spec, name = JOB["spec"], JOB["metadata"]["name"]
    assert (JOB["apiVersion"], JOB["kind"], spec["completionMode"]) == ("batch/v1", "Job", "Indexed")
    assert spec["completions"] == spec["parallelism"]
    ports = {port["containerPort"] for port in CONTAINER["ports"]} | {port["port"] for port in SERVICE["spec"]["ports"]}
    (port,) = ports
    pods = [f"{name}-{index}.{POD['subdomain']}:{port}" for index in range(spec["completions"])]
    assert config.strategy == "multi_worker" and worker_addresses(config.workers) == pods
    assert SERVICE["spec"]["clusterIP"] == "None" and SERVICE["metadata"]["name"] == POD["subdomain"]
    assert SERVICE["spec"]["selector"].items() <= JOB["spec"]["template"]["metadata"]["labels"].items()
    assert {mount["name"] for mount in CONTAINER["volumeMounts"]} == {volume["name"] for volume in POD["volumes"]}
    assert POD["restartPolicy"] == "OnFailure" and spec["backoffLimit"] > spec["completions"]
