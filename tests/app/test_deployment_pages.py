"""What the pages about serving tell people to type, apply and configure is what the program takes, and fits together."""

from __future__ import annotations

import os
import re
import shlex
import signal
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from claude_transport.app.arguments import parse
from claude_transport.serving.door import GatewayTokens
from claude_transport.streams.address import parse_address

DOCS = Path(__file__).parents[2] / "docs"
EXAMPLES = DOCS / "examples"
TLS_PAGE = (DOCS / "how-to" / "serve-with-tls.md").read_text("utf-8")
PATIENCE = 60  # seconds


def command_lines() -> Iterator[str]:
    """Every `claude-transport serve` that a page has in a block of shell code."""
    for page in sorted((DOCS / "how-to").glob("*.md")):
        for block in re.findall(r"^```bash\n(.*?)^```$", page.read_text("utf-8"), re.DOTALL | re.MULTILINE):
            yield from (line for line in block.splitlines() if line.startswith("claude-transport serve"))


def parsed(arguments: list[str]) -> SimpleNamespace:
    """What the program makes of its arguments; a mistake in them fails the test with the program's own words."""
    read = parse(arguments)
    assert read is not None
    return read


def manifests(name: str) -> dict[str, Any]:
    """The objects in a file, by kind."""
    return {each["kind"]: each for each in yaml.safe_load_all((EXAMPLES / name).read_text("utf-8"))}


GATEWAY = manifests("kubernetes_gateway.yaml")
AGENT = manifests("kubernetes_agent.yaml")
POD: dict[str, Any] = GATEWAY["Deployment"]["spec"]["template"]["spec"]
(CONTAINER,) = POD["containers"]
SERVED = parsed([*CONTAINER["command"][1:], *CONTAINER["args"]])


# ------------------------------------------------------------------------------------------------------------ command lines


@pytest.mark.parametrize("line", sorted(set(command_lines())))
def test_a_command_line_of_a_page_is_one_that_the_program_takes(line: str) -> None:
    served = parsed(shlex.split(line)[1:])
    for url in served.listen:
        address = parse_address(url)
        assert address.stays_here or served.token_file
        assert address.stays_here or address.is_encrypted
        assert not address.is_encrypted or served.certificate


def test_there_are_command_lines_with_tls_mutual_tls_and_for_a_proxy() -> None:
    text = "\n".join(command_lines())
    assert all(word in text for word in ("tls://", "wss://", "ws://127.0.0.1", "--client-ca", "--key"))


def test_the_proxy_hands_on_to_the_port_and_the_path_of_the_command_beside_it() -> None:
    proxy = (EXAMPLES / "reverse_proxy.conf").read_text("utf-8")
    (url,) = re.findall(r"serve --listen (ws://\S+)", TLS_PAGE)
    address = parse_address(url)
    assert f"proxy_pass http://{address.host}:{address.port};" in proxy
    assert f"location {address.target} {{" in proxy
    assert proxy.count("{") == proxy.count("}")


# ------------------------------------------------------------------------------------------------------------- certificates


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the commands of the page have made."""
    folder = tmp_path_factory.mktemp("certificates")
    (commands,) = (block for block in re.findall(r"^```bash\n(.*?)^```$", TLS_PAGE, re.DOTALL | re.MULTILINE) if "openssl" in block)
    try:
        version = subprocess.run(["openssl", "version"], capture_output=True, text=True, check=True).stdout
    except FileNotFoundError:
        pytest.skip("no openssl on this machine")
    if not version.startswith("OpenSSL 3"):
        pytest.skip(f"the commands are for OpenSSL 3, and here is {version.strip()}")
    subprocess.run(["bash", "-euo", "pipefail", "-c", commands], cwd=folder, check=True, capture_output=True, timeout=PATIENCE)
    return folder


def shake_hands(client: ssl.SSLContext, server: ssl.SSLContext, *, name: str) -> ssl.SSLObject:
    """The server's end of a connection in memory; an `ssl.SSLError` when either end does not want it."""
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [client.wrap_bio(down, up, server_hostname=name), server.wrap_bio(up, down, server_side=True)]
    for _ in range(6):  # more flights than a handshake has
        for end in ends:
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
    return ends[1]


def contexts(folder: Path) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Of a client and a server that both have a certificate of the authority, and are as strict as newer Pythons."""
    client = ssl.create_default_context(cafile=folder / "authority.pem")
    client.load_cert_chain(folder / "client.pem", folder / "client.key")
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(folder / "server.pem", folder / "server.key")
    server.load_verify_locations(folder / "authority.pem")
    server.verify_mode = ssl.CERT_REQUIRED
    for context in (client, server):
        context.verify_flags |= ssl.VERIFY_X509_STRICT
    return client, server


@pytest.mark.parametrize("name", ["claude.example", "localhost", "127.0.0.1"])
def test_the_certificates_that_the_page_makes_are_accepted_by_both_ends(certificates: Path, name: str) -> None:
    client, server = contexts(certificates)
    shown = shake_hands(client, server, name=name).getpeercert()
    assert shown is not None
    assert shown["subject"] == ((("commonName", "alice"),),)


def test_the_certificate_that_the_page_makes_is_for_no_other_name(certificates: Path) -> None:
    client, server = contexts(certificates)
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(client, server, name="claude.example.org")


# ------------------------------------------------------------------------------------------------- the gateway on Kubernetes


def test_the_gateway_listens_at_the_port_that_is_probed_and_that_the_service_leads_to() -> None:
    (url,) = SERVED.listen
    address = parse_address(url)
    (port,) = CONTAINER["ports"]
    assert address.is_encrypted
    assert address.is_websocket
    assert address.port == port["containerPort"]
    assert CONTAINER["readinessProbe"]["httpGet"] == {"path": "/healthz", "port": port["name"], "scheme": "HTTPS"}
    assert SERVED.client_ca is None  # the probe has no certificate
    (service,) = GATEWAY["Service"]["spec"]["ports"]
    assert service["targetPort"] == port["name"]
    labels = GATEWAY["Deployment"]["spec"]["template"]["metadata"]["labels"]
    assert GATEWAY["Service"]["spec"]["selector"] == labels == GATEWAY["Deployment"]["spec"]["selector"]["matchLabels"]


def test_every_file_that_the_gateway_is_told_of_is_mounted_and_none_is_for_everybody() -> None:
    mounted = {mount["mountPath"]: mount["name"] for mount in CONTAINER["volumeMounts"]}
    volumes = {volume["name"]: volume for volume in POD["volumes"]}
    assert set(mounted.values()) == set(volumes)
    for path in (SERVED.token_file, SERVED.certificate, SERVED.key):
        assert volumes[mounted[str(Path(path).parent)]]["secret"]["defaultMode"] & 0o077 == 0
    secret = volumes[mounted[str(Path(SERVED.token_file).parent)]]["secret"]
    assert secret["secretName"] == GATEWAY["Secret"]["metadata"]["name"]
    assert [item["path"] for item in secret["items"]] == [Path(SERVED.token_file).name]
    assert {item["key"] for item in secret["items"]} <= set(GATEWAY["Secret"]["stringData"])
    home = next(each["value"] for each in CONTAINER["env"] if each["name"] == "HOME")
    assert {home, SERVED.cwd} <= set(mounted)


def test_the_tokens_in_the_secret_are_such_as_the_program_reads(tmp_path: Path) -> None:
    path = tmp_path / "tokens"
    path.touch(mode=0o400)
    path.chmod(0o600)
    path.write_text(GATEWAY["Secret"]["stringData"]["tokens"])
    assert repr(GatewayTokens.from_file(path)) == "GatewayTokens(alice)"


def test_the_pod_has_more_time_to_end_than_turns_have_to_finish() -> None:
    assert POD["terminationGracePeriodSeconds"] >= SERVED.drain_timeout + 20


# --------------------------------------------------------------------------------------------------- a sidecar on Kubernetes


def test_the_example_reads_what_the_job_says_and_may_do_what_kubectl_does() -> None:
    pod = AGENT["Job"]["spec"]["template"]["spec"]
    example = (EXAMPLES / "in_a_pod.py").read_text("utf-8")
    (sidecar,), (program,) = pod["initContainers"], pod["containers"]
    assert f'container="{sidecar["name"]}"' in example
    assert set(re.findall(r'environ\["(\w+)"\]', example)) <= {each["name"] for each in program["env"]}
    rules = {resource: set(rule["verbs"]) for rule in AGENT["Role"]["rules"] for resource in rule["resources"]}
    assert rules == {"pods": {"get"}, "pods/exec": {"get", "create"}}
    (subject,) = AGENT["RoleBinding"]["subjects"]
    assert subject["name"] == pod["serviceAccountName"] == AGENT["ServiceAccount"]["metadata"]["name"]
    assert AGENT["RoleBinding"]["roleRef"]["name"] == AGENT["Role"]["metadata"]["name"]
    assert {mount["name"] for each in (sidecar, program) for mount in each["volumeMounts"]} == {each["name"] for each in pod["volumes"]}
    assert "account" not in {mount["name"] for mount in sidecar["volumeMounts"]}


def test_the_first_process_of_the_sidecar_ends_when_it_is_told_to() -> None:
    (sidecar,) = AGENT["Job"]["spec"]["template"]["spec"]["initContainers"]
    assert sidecar["restartPolicy"] == "Always"
    program, flag, script = sidecar["command"]
    assert "& wait;" in script
    telling = script.replace("& wait;", "& echo waiting; wait;")  # its trap is set by then
    with subprocess.Popen([program, flag, telling], stdout=subprocess.PIPE, start_new_session=True) as shell:
        try:
            assert shell.stdout is not None
            assert shell.stdout.readline() == b"waiting\n"
            shell.terminate()
            assert shell.wait(PATIENCE) == 128 + signal.SIGTERM or shell.returncode == 0
        finally:
            os.killpg(shell.pid, signal.SIGKILL)  # with a shell that has ended, its last sleep
