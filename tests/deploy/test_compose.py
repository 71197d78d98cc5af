"""compose.yaml matches its schema, the image, the service and the files that it mounts."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
import yaml

from tests.deploy.confined import directives
from tests.deploy.image import COMPOSE, FILE, ROOT, SERVICES, Image, Json, assert_of_schema
from trmon.config.settings import Settings, unknown_variables

OURS = {name: service for name, service in SERVICES.items() if service["image"].startswith("trmon:")}
ENTRYPOINT = (ROOT / "deploy" / "entrypoint.sh").read_text()
SECRETS_FILE = FILE.with_name("compose.secrets.yaml")
PROFILES = {"embedded", "fleet"}


def mounts(service: Json) -> list[tuple[str, str]]:
    """Return the mounts: source and destination."""
    return [(source, target) for source, target, *_ in (volume.split(":") for volume in service.get("volumes", ()))]


def known_commands() -> set[str]:
    commands = (ROOT / "docs" / "reference" / "commands.md").read_text()
    return set(re.findall(r"^## `trmon (\w+)", commands, re.MULTILINE)) | {"secrets", "tokens"}


def test_both_files_match_the_compose_schema() -> None:
    assert_of_schema("vendor.compose-spec", FILE, SECRETS_FILE)


def test_both_profiles_have_metrics_alerts_and_dashboards() -> None:
    assert {name for name, service in SERVICES.items() if set(service["profiles"]) == PROFILES} == {
        *("prometheus", "alertmanager", "grafana", "secrets")
    }
    assert all(service["profiles"] and set(service["profiles"]) <= PROFILES for service in SERVICES.values())
    assert [name for name, service in SERVICES.items() if service["profiles"] == ["embedded"]] == ["trmon"]


@pytest.mark.parametrize("profile", sorted(PROFILES))
def test_prometheus_finds_one_service_by_the_same_name_in_each_profile(profile: str) -> None:
    named = {
        name
        for name, service in SERVICES.items()
        if profile in service["profiles"]
        and "api" in {name, *service.get("networks", {}).get("default", {}).get("aliases", ())}
    }
    assert named == {"trmon" if profile == "embedded" else "api"}


@pytest.mark.parametrize("name", ["trmon", "api"])
def test_alerts_go_to_alertmanager_in_each_profile(name: str) -> None:
    variables = SERVICES[name]["environment"]
    assert variables["TRMON_ALERTMANAGER_URL"] == "http://alertmanager:9093"
    assert variables["TRMON_WEBHOOK_ALLOW_HOSTS"] == "alertmanager"


@pytest.mark.parametrize("name", OURS)
def test_every_setting_and_command_exists(name: str) -> None:
    service = OURS[name]
    variables = {variable for variable in service.get("environment", {}) if variable.startswith("TRMON_")}
    assert variables <= {f"TRMON_{field.upper()}" for field in Settings.model_fields}
    assert service["command"][0] in known_commands()
    assert (service["build"]["context"], service["build"]["dockerfile"]) == ("..", "deploy/Dockerfile")
    assert {target for _, target in mounts(service)} <= set(Image.read().folders)
    Settings(
        **{
            variable.removeprefix("TRMON_").lower(): _default(service["environment"][variable])
            for variable in variables
        }
    )


def _default(value: str) -> str:
    """Return a value as compose resolves it with no variables set."""
    return re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", value)


@pytest.mark.parametrize("name", SERVICES)
def test_every_container_is_confined_and_limited(name: str) -> None:
    service = SERVICES[name]
    assert (service["read_only"], service["cap_drop"], service.get("cap_add")) == (True, ["ALL"], None)
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert "/tmp" in service["tmpfs"]
    assert re.fullmatch(r"\d+[mg]", service["mem_limit"])
    assert 0 < service["cpus"] <= 2
    assert 0 < service["pids_limit"] <= 256
    assert not service.keys() & {"privileged", "network_mode", "pid", "ipc", "devices"}


def test_the_limits_are_those_of_the_systemd_unit() -> None:
    memory, [tasks] = directives("MemoryMax"), directives("TasksMax")
    assert {service["mem_limit"].upper() for service in OURS.values()} == set(memory)
    assert {str(service["pids_limit"]) for service in OURS.values()} == {tasks}


def test_no_variable_must_be_set() -> None:
    assert re.findall(r"\$\{(?!\w+:-)[^}]*\}", FILE.read_text()) == []


@pytest.mark.parametrize("name", SERVICES)
def test_all_ports_bind_to_loopback(name: str) -> None:
    assert all(port.startswith("127.0.0.1:") for port in SERVICES[name].get("ports", ()))


@pytest.mark.parametrize("name", SERVICES)
def test_every_mounted_file_exists(name: str) -> None:
    for source, _ in mounts(SERVICES[name]):
        if source.startswith("."):
            assert (FILE.parent / source).exists()
        else:
            assert source in COMPOSE["volumes"]


def test_every_volume_is_mounted() -> None:
    assert {source for service in SERVICES.values() for source, _ in mounts(service)} >= COMPOSE["volumes"].keys()


@pytest.mark.parametrize("name", SERVICES)
def test_every_dependency_can_be_satisfied(name: str) -> None:
    for other, wanted in SERVICES[name].get("depends_on", {}).items():
        waited_for = SERVICES[other]
        assert set(waited_for["profiles"]) >= set(SERVICES[name]["profiles"])
        if wanted["condition"] == "service_healthy":
            assert "test" in waited_for["healthcheck"]
        else:
            assert waited_for["restart"] == "no"


def test_every_image_is_pinned() -> None:
    for service in SERVICES.values():
        assert re.fullmatch(r"[\w/.-]+:v?\d[\w.]*", service["image"])


def test_the_stores_are_those_of_the_profile() -> None:
    variables = SERVICES["api"]["environment"]
    database, redis = urlsplit(variables["TRMON_DATABASE_URL"]), urlsplit(variables["TRMON_REDIS_URL"])
    assert (database.hostname, redis.hostname) == ("postgres", "redis")
    assert database.password is None
    [password_file] = parse_qs(database.query)["passfile"]
    assert {folder for _, folder in mounts(SERVICES["api"])} >= {str(Path(password_file).parent)}
    user, name = database.username, database.path.strip("/")
    assert f"{database.hostname}:{database.port}:{name}:{user}:%s" in ENTRYPOINT
    made = SERVICES["postgres"]["environment"]
    assert (made["POSTGRES_USER"], made["POSTGRES_DB"]) == (user, name)


def test_prometheus_finds_the_service_its_token_and_alertmanager() -> None:
    config = yaml.safe_load((FILE.parent / "prometheus" / "prometheus.yml").read_text())
    [scrape] = config["scrape_configs"]
    ports = {name: found["port"] for found in scrape["dns_sd_configs"] for name in found["names"]}
    assert ports == {"api": Settings.model_fields["port"].default, "worker": int(SERVICES["worker"]["command"][-1])}
    assert SERVICES["worker"]["command"][:-1] == ["worker", "--metrics-port"]
    token = Path(scrape["authorization"]["credentials_file"])
    assert str(token.parent) in {target for _, target in mounts(SERVICES["prometheus"])}
    assert f"make_token {token.name} read 644" in ENTRYPOINT
    [to] = config["alerting"]["alertmanagers"]
    assert to["static_configs"] == [{"targets": ["alertmanager:9093"]}]


def test_grafana_finds_prometheus_and_every_dashboard() -> None:
    provisioning = ROOT / "dashboards" / "provisioning"
    [source] = yaml.safe_load((provisioning / "datasources" / "trmon.yml").read_text())["datasources"]
    assert source["url"] == "http://prometheus:9090"
    [provider] = yaml.safe_load((provisioning / "dashboards" / "trmon.yml").read_text())["providers"]
    mounted = {target for _, target in mounts(SERVICES["grafana"])}
    dashboards = {f"{provider['options']['path']}/{path.name}" for path in (ROOT / "dashboards").glob("*.json")}
    assert dashboards <= mounted
    assert SERVICES["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"] in dashboards


def test_each_secret_is_a_setting_from_the_file_that_docker_mounts() -> None:
    overlay = yaml.safe_load(SECRETS_FILE.read_text())
    assert overlay["services"].keys() <= OURS.keys()
    for service in overlay["services"].values():
        assert set(service["secrets"]) == overlay["secrets"].keys()
        assert service["environment"] == {
            f"TRMON_{name.upper()}_FILE": f"/run/secrets/{name}" for name in overlay["secrets"]
        }
        assert list(unknown_variables(service["environment"])) == []
