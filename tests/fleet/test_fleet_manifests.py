"""What the page about running a fleet tells people to type and to apply is what the programs take, and fits together."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from broker_server import BrokerServer

from claude_transport.app.arguments import MANUAL, parse
from claude_transport.fleet import FleetMetrics, FleetRegistry
from claude_transport.fleet.broker import BrokerAddress
from claude_transport.fleet.hosted import LAST_WORDS
from claude_transport.serving.door import GatewayTokens
from claude_transport.sessions import RedisSessionStore
from claude_transport.testing import run_store_conformance

DOCS = Path(__file__).parents[2] / "docs"
EXAMPLES = DOCS / "examples"
PAGE = (DOCS / "how-to" / "run-a-fleet.md").read_text("utf-8")
USERS = (EXAMPLES / "fleet_users.acl").read_text("utf-8") + (EXAMPLES / "fleet_store_users.acl").read_text("utf-8")
COMPOSE: dict[str, Any] = yaml.safe_load((EXAMPLES / "fleet_compose.yaml").read_text("utf-8"))
MANIFESTS = {
    (each["kind"], each["metadata"]["name"]): each for each in yaml.safe_load_all((EXAMPLES / "fleet_kubernetes.yaml").read_text("utf-8"))
}
POD: dict[str, Any] = MANIFESTS["StatefulSet", "claude-worker"]["spec"]["template"]["spec"]
(CONTAINER,) = POD["containers"]
BROKER_POD: dict[str, Any] = MANIFESTS["StatefulSet", "claude-broker"]["spec"]["template"]["spec"]
SERVICE: dict[str, Any] = COMPOSE["services"]["worker"]
SECRET: dict[str, str] = MANIFESTS["Secret", "claude-fleet"]["stringData"]

CLOSING = 10 + 5 + LAST_WORDS
"""Seconds after a drain: for the session store, the process, and the last lines."""


def parsed(arguments: list[str]) -> SimpleNamespace:
    """What the program makes of its arguments; a mistake in them fails the test with the program's own words."""
    read = parse(arguments)
    assert read is not None
    return read


IN_POD = parsed([*CONTAINER["command"][1:], *CONTAINER["args"]])
IN_COMPOSE = parsed(SERVICE["command"][1:])


def test_each_file_is_on_the_page() -> None:
    included = set(re.findall(r"\{literalinclude\} \.\./examples/(\S+)", PAGE))
    assert included == {path.name for path in EXAMPLES.glob("fleet_*")}


def test_each_command_line_of_the_page_is_one_that_the_program_takes() -> None:
    blocks = re.findall(r"^```bash\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    lines = [line for block in blocks for line in block.splitlines() if line.startswith("claude-transport ")]
    assert len(lines) >= 2
    for line in lines:
        parsed(shlex.split(line)[1:])
    for words in re.findall(r"`claude-transport ([^`]+)`", PAGE):
        parsed(shlex.split(words))


def test_each_environment_variable_is_in_the_manual_of_the_program() -> None:
    known = {name for name, _ in MANUAL["worker"].environment} | {"HOME"}
    in_pod = {each["name"] for each in CONTAINER["env"]}
    used = set(re.findall(r"\$\((\w+)\)", " ".join(CONTAINER["args"])))
    assert in_pod - known == used == {"POD_NAME"}
    assert set(SERVICE["environment"]) <= known
    assert set(re.findall(r"`(CLAUDE_TRANSPORT_\w+)`", PAGE)) <= known


@pytest.mark.parametrize(
    ("worker", "grace"),
    [(IN_POD, POD["terminationGracePeriodSeconds"]), (IN_COMPOSE, int(SERVICE["stop_grace_period"].removesuffix("s")))],
)
def test_a_worker_has_more_time_to_end_than_its_drain_takes(worker: SimpleNamespace, grace: float) -> None:
    assert grace >= worker.drain_timeout + CLOSING + 10


def test_the_worker_is_probed_scraped_and_let_through_at_the_port_where_it_answers() -> None:
    (port,) = CONTAINER["ports"]
    assert IN_POD.metrics_port == port["containerPort"]
    assert IN_POD.metrics_host == "0.0.0.0"
    assert CONTAINER["readinessProbe"]["httpGet"] == {"path": "/healthz", "port": port["name"]}
    assert "livenessProbe" not in CONTAINER
    template = MANIFESTS["StatefulSet", "claude-worker"]["spec"]["template"]["metadata"]
    assert template["annotations"]["prometheus.io/port"] == str(IN_POD.metrics_port)
    (rule,) = MANIFESTS["NetworkPolicy", "claude-worker"]["spec"]["ingress"]
    assert rule["ports"] == [{"port": IN_POD.metrics_port}]
    assert f":{IN_COMPOSE.metrics_port}/healthz" in SERVICE["healthcheck"]["test"][-1]


def test_everything_that_selects_the_workers_selects_their_pods() -> None:
    workers = {"app": "claude-worker"}
    stateful = MANIFESTS["StatefulSet", "claude-worker"]["spec"]
    assert stateful["template"]["metadata"]["labels"] == workers == stateful["selector"]["matchLabels"]
    assert stateful["serviceName"] == "claude-worker"
    assert MANIFESTS["Service", "claude-worker"]["spec"]["selector"] == workers
    assert MANIFESTS["PodDisruptionBudget", "claude-worker"]["spec"]["selector"]["matchLabels"] == workers
    assert MANIFESTS["NetworkPolicy", "claude-worker"]["spec"]["podSelector"]["matchLabels"] == workers
    target = MANIFESTS["HorizontalPodAutoscaler", "claude-worker"]["spec"]["scaleTargetRef"]
    assert (target["kind"], target["name"]) == ("StatefulSet", "claude-worker")
    brokers = MANIFESTS["Service", "claude-broker"]["spec"]["selector"]
    assert brokers == MANIFESTS["StatefulSet", "claude-broker"]["spec"]["template"]["metadata"]["labels"]
    (ingress,) = MANIFESTS["NetworkPolicy", "claude-broker"]["spec"]["ingress"]
    assert {"podSelector": {"matchLabels": workers}} in ingress["from"]


def test_each_volume_that_is_mounted_is_there_and_no_secret_is_for_everybody() -> None:
    for pod, name in ((POD, "claude-worker"), (BROKER_POD, "claude-broker")):
        (container,) = pod["containers"]
        claims = {each["metadata"]["name"] for each in MANIFESTS["StatefulSet", name]["spec"]["volumeClaimTemplates"]}
        volumes = {each["name"] for each in pod["volumes"]}
        assert {mount["name"] for mount in container["volumeMounts"]} == claims | volumes
        for volume in pod["volumes"]:
            assert volume.get("secret", {}).get("defaultMode", 0) & 0o007 == 0
    mounted = {mount["mountPath"] for mount in CONTAINER["volumeMounts"]}
    home = next(each["value"] for each in CONTAINER["env"] if each["name"] == "HOME")
    assert {home, IN_POD.cwd, str(Path(IN_POD.token_file).parent)} <= mounted
    keys = {each["valueFrom"]["secretKeyRef"]["key"] for each in CONTAINER["env"] if "secretKeyRef" in each.get("valueFrom", {})}
    assert keys | {"tokens"} == set(SECRET)
    assert [Path(IN_COMPOSE.token_file).name] == SERVICE["secrets"] == list(COMPOSE["secrets"])


def test_the_urls_name_users_and_hosts_that_are_there(tmp_path: Path) -> None:
    in_compose = [value.replace("${", "").replace(":?}", "") for name, value in SERVICE["environment"].items() if "redis://" in value]
    for url in (SECRET["broker"], SECRET["store"], *in_compose):
        user, _, _ = url.partition("://")[2].partition(":")
        assert f"user {user} on >REPLACE-" in USERS
        assert "password" not in str(BrokerAddress(url)).lower()
    assert BrokerAddress(SECRET["broker"]).server.host == MANIFESTS["Service", "claude-broker"]["metadata"]["name"]
    assert {BrokerAddress(url).server.host for url in in_compose} <= set(COMPOSE["services"])
    path = tmp_path / "tokens"
    path.touch(mode=0o600)
    path.write_text(SECRET["tokens"])
    assert repr(GatewayTokens.from_file(path)) == "GatewayTokens(alice)"


def test_the_autoscaler_asks_for_the_metric_of_the_rule_which_asks_for_metrics_of_a_worker() -> None:
    (rule,) = yaml.safe_load((EXAMPLES / "fleet_prometheus_adapter.yaml").read_text("utf-8"))["rules"]["external"]
    (metric,) = MANIFESTS["HorizontalPodAutoscaler", "claude-worker"]["spec"]["metrics"]
    assert metric["external"]["metric"]["name"] == rule["name"]["as"]
    assert int(metric["external"]["target"]["averageValue"]) < IN_POD.capacity
    text = FleetMetrics().prometheus_text()
    used = set(re.findall(r"claude_transport_fleet_\w+", rule["seriesQuery"] + rule["metricsQuery"]))
    assert used
    for name in used:
        assert re.search(rf"^{name} \d", text, re.MULTILINE), name
    table = PAGE.partition("| metric | what it tells |")[2].partition("\n\n")[0]
    for name in re.findall(r"^\| `.*?` \|", table, re.MULTILINE):
        for each in re.findall(r"`(\w+)", name):
            assert f"# TYPE claude_transport_fleet_{each} " in text, each


@pytest.mark.parametrize("where", ["compose", "kubernetes"])
async def test_a_server_takes_the_settings_of_the_broker_and_a_fleet_can_run_on_it(tmp_path: Path, where: str) -> None:
    (container,) = BROKER_POD["containers"]
    said: list[str] = COMPOSE["services"]["broker"]["command"][1:] if where == "compose" else container["args"]
    settings = [str(EXAMPLES / "fleet_users.acl") if word == "/etc/fleet/users.acl" else word for word in said]
    settings = [str(tmp_path) if word == "/data" else word for word in settings]
    server = BrokerServer(tmp_path / "broker", *settings)
    server.start()
    try:
        async with FleetRegistry(server.url.replace("//", "//fleet-operator:REPLACE-OPERATOR@")) as registry:
            check = await registry.check()
        assert check.findings == ()
        assert check.settings["appendonly"] == "yes"
    finally:
        server.kill()


def test_the_user_of_the_session_store_can_do_what_a_store_does(tmp_path: Path) -> None:
    settings = [
        word if word != "/etc/fleet/users.acl" else str(EXAMPLES / "fleet_store_users.acl")
        for word in COMPOSE["services"]["store"]["command"][1:]
    ]
    server = BrokerServer(tmp_path / "store", *settings)
    server.start()
    count = 0

    def empty_store() -> RedisSessionStore:
        nonlocal count
        count += 1
        return RedisSessionStore(server.url.replace("//", "//fleet-store:REPLACE-STORE@"), prefix=f"claude-sessions-{count}")

    try:
        report = run_store_conformance(empty_store, backends=["asyncio"])
        report.raise_for_failures()
        assert report.passed
    finally:
        server.kill()
