"""docker-compose.yml and Dockerfile, as far as they can be checked without a container engine: every path, command,
setting and configuration in them is tried with our own code; `docker compose config` is asked where it is there."""

from __future__ import annotations

import importlib
import json
import re
import shlex
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import psycopg
import pytest
import yaml
from typer.testing import CliRunner

from headrace.connectors.debezium.config_rules import check
from headrace.connectors.debezium.settings import Connection, connector_config
from headrace.sidecar.cli import app
from headrace.sidecar.config.config import load
from headrace.sidecar.devstack import jars
from headrace.sidecar.devstack.postgres import EmbeddedPostgres, binaries

ROOT = Path(__file__).parents[3]
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
SERVICES: dict[str, Any] = COMPOSE["services"]
DOCKERFILE = (ROOT / "Dockerfile").read_text().replace("\\\n", " ").splitlines()
EXPECTED_CONNECTOR = connector_config(
    "shop",
    Connection("postgres", 5432, "cdc", "shop"),
    ["public.customers", "public.orders"],
    overrides={"publication.autocreate.mode": "disabled"},
)


def instructions(word: str) -> list[str]:
    return [line.split(" ", 1)[1] for line in DOCKERFILE if line.startswith(f"{word} ")]


def mounts(service: str) -> dict[str, str]:
    """Container path → host path, of the files and folders the compose file brings in."""
    volumes = [volume.split(":") for volume in SERVICES[service].get("volumes", [])]
    return {words[1]: words[0] for words in volumes if words[0].startswith(".")}


def test_compose_itself_accepts_the_file() -> None:
    docker = shutil.which("docker")
    if docker is None or subprocess.run([docker, "compose", "version"], capture_output=True, check=False).returncode:
        pytest.skip("no docker compose here")
    done = subprocess.run(
        [docker, "compose", "config", "--quiet"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_the_services_are_those_of_the_embedded_stack_and_the_sidecar() -> None:
    observing = {name for name, service in SERVICES.items() if service.get("profiles") == ["observe"]}
    assert observing == {"prometheus", "grafana"}
    assert set(SERVICES) - observing == {"postgres", "kafka", "connect", "register", "sidecar"}
    for service in SERVICES.values():
        for name, condition in service.get("depends_on", {}).items():
            assert ("healthcheck" in SERVICES[name]) == (condition["condition"] == "service_healthy")


def test_images_have_the_versions_of_the_pinned_jars() -> None:
    versions = {jar.artifact: jar.version for jar in jars.read_lock()}
    assert SERVICES["kafka"]["image"] == f"apache/kafka:{versions['kafka_2.13']}"
    assert SERVICES["connect"]["image"].endswith(f":{versions['debezium-connector-postgres']}")
    assert SERVICES["register"]["image"] == SERVICES["connect"]["image"]


def test_nobody_has_more_rights_than_it_needs() -> None:
    for name, service in SERVICES.items():
        assert service["cap_drop"] == ["ALL"], name
        assert "no-new-privileges:true" in service["security_opt"], name
        assert not service.get("privileged"), name
        for port in service.get("ports", []):
            assert port.startswith("127.0.0.1:"), f"{name} publishes {port} beyond this machine"
    assert SERVICES["sidecar"]["read_only"]
    (user,) = instructions("USER")
    assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", user), "a number, which Kubernetes' runAsNonRoot asks for"


def test_passwords_come_from_the_environment() -> None:
    for name, service in SERVICES.items():
        for variable, value in service.get("environment", {}).items():
            if re.search(r"PASSWORD|_URL$", variable):
                assert "${HEADRACE_" in value, f"{name}: {variable}"
    sql = (ROOT / "examples/shop/shop.sql").read_text()
    for line in re.findall(r"create role .* (password .*)", sql):
        assert re.fullmatch(r"password :'\w+';", line)


@pytest.mark.parametrize("service", sorted(SERVICES))
def test_every_mounted_file_is_there_and_read_only(service: str) -> None:
    for volume in SERVICES[service].get("volumes", []):
        source, _, rest = volume.partition(":")
        if source.startswith("."):
            assert (ROOT / source).exists(), source
            assert rest.endswith(":ro"), volume
        else:
            assert source in COMPOSE["volumes"], volume


def test_the_dockerfile_copies_what_is_there_and_what_the_ignore_file_lets_through() -> None:
    allowed = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    copied = {source for words in instructions("COPY") if "--from" not in words for source in words.split()[:-1]}
    assert copied == allowed
    for source in copied - {"README.md"}:
        assert (ROOT / source).exists(), source


def test_the_sidecars_packages_are_pinned_as_everywhere() -> None:
    def pins(file: str) -> dict[str, str]:
        return dict(re.findall(r"^([\w.-]+)==(\S+)", (ROOT / file).read_text(), re.MULTILINE))

    run, everything = pins("requirements-run.lock"), pins("requirements.lock")
    assert run
    assert run.items() <= everything.items()


@pytest.mark.parametrize("file", ["requirements.lock", "requirements-run.lock"])
def test_a_lock_file_has_a_hash_for_each_pin_and_no_address(file: str) -> None:
    text = (ROOT / file).read_text()
    assert "://" not in text
    assert "index-url" not in text
    for block in re.split(r"\n(?=\w)", text):
        assert "--hash=sha256:" in block, block[:80]


def test_kernels_are_compiled_from_where_they_run() -> None:
    """numba's cache names the folder of the sources: kernels compiled in a checkout are not found by the installed package."""
    folder, sources = "/", set()
    for line in DOCKERFILE:
        word, _, rest = line.partition(" ")
        if word == "WORKDIR":
            folder = rest
        elif word == "COPY" and "engine" in rest.split():
            sources.add(folder)
        elif word == "RUN" and "kernels.warm()" in rest:
            assert folder not in sources
            return
    raise AssertionError("the image brings no kernels")


def test_there_is_one_python() -> None:
    (base,) = (words.removeprefix("BASE=") for words in instructions("ARG"))
    image = re.match(r"python:(\d+\.\d+)-slim", base)
    assert image is not None, base
    assert {words.split(" ")[0] for words in instructions("FROM")} == {"${BASE}"}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert project["project"]["requires-python"] == f">={image[1]}"
    assert project["tool"]["mypy"]["python_version"] == image[1]
    assert project["tool"]["ruff"]["target-version"] == f"py{image[1].replace('.', '')}"
    for page in (ROOT / "docs").glob("*.md"):
        assert set(re.findall(r"Python (3\.\d+)", page.read_text())) <= {image[1]}, page.name


def test_the_root_may_be_read_only_and_docker_is_told_how_the_sidecar_is() -> None:
    (volumes,) = map(json.loads, instructions("VOLUME"))
    assert volumes == ["/var/lib/headrace", "/tmp"]
    sidecar = SERVICES["sidecar"]
    written = {volume.split(":")[1] for volume in sidecar["volumes"] if not volume.endswith(":ro")} | set(
        sidecar["tmpfs"]
    )
    assert written == set(volumes)
    (check,) = instructions("HEALTHCHECK")
    words = json.loads(check.partition(" CMD ")[2])
    config = json.loads(instructions("CMD")[0])[-1]
    assert words == ["headrace", "status", "--config", config]


def test_prometheus_and_grafana_find_the_sidecar_and_each_other() -> None:
    scraped = yaml.safe_load((ROOT / mounts("prometheus")["/etc/prometheus/prometheus.yaml"]).read_text())
    (job,) = scraped["scrape_configs"]
    port = SERVICES["sidecar"]["ports"][0].rsplit(":", 1)[1]
    assert job["job_name"] == "headrace", "as the alerts expect"
    assert job["static_configs"] == [{"targets": [f"sidecar:{port}"]}]
    for file in scraped["rule_files"]:
        assert "groups" in yaml.safe_load((ROOT / mounts("prometheus")[f"/etc/prometheus/{file}"]).read_text())
    inside = mounts("grafana")
    (source,) = yaml.safe_load((ROOT / inside["/etc/grafana/provisioning/datasources/headrace.yaml"]).read_text())[
        "datasources"
    ]
    assert source["url"] == f"http://prometheus:{SERVICES['prometheus']['ports'][0].rsplit(':', 1)[1]}"
    (provider,) = yaml.safe_load((ROOT / inside["/etc/grafana/provisioning/dashboards/headrace.yaml"]).read_text())[
        "providers"
    ]
    dashboard = SERVICES["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
    assert dashboard.startswith(provider["options"]["path"] + "/")
    assert json.loads((ROOT / inside[dashboard]).read_text())["uid"] == "headrace"


def test_the_dockerfiles_modules_and_commands_are_ours() -> None:
    for program in re.findall(r'python -c "([^"]*)"', "\n".join(instructions("RUN"))):
        found = re.fullmatch(r"from headrace.engine import (\w+); \1\.(\w+)\(\)", program)
        assert found is not None, program
        module, name = found.groups()
        assert callable(getattr(importlib.import_module(f"headrace.engine.{module}"), name))
    entry = json.loads(instructions("ENTRYPOINT")[0])
    assert entry == ["headrace"]
    words = json.loads(instructions("CMD")[0])
    helped = CliRunner().invoke(app.app, [*words[:1], "--help"])
    assert helped.exit_code == 0, helped.output
    for option in words[1:]:
        assert not option.startswith("-") or option in helped.output
    assert words[-1] in mounts("sidecar")


def test_the_sidecars_configuration_and_views_are_valid(monkeypatch: pytest.MonkeyPatch) -> None:
    file = ROOT / mounts("sidecar")["/etc/headrace/headrace.yaml"]
    monkeypatch.setenv(
        "WAREHOUSE_URL", re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", SERVICES["sidecar"]["environment"]["WAREHOUSE_URL"])
    )
    config = load(file).config
    broker = SERVICES["kafka"]["environment"]["KAFKA_ADVERTISED_LISTENERS"]
    assert f"INSIDE://{config.kafka['bootstrap.servers']}" in broker
    assert config.http is not None
    assert f":{config.http.rsplit(':', 1)[1]}" in SERVICES["sidecar"]["ports"][0]
    assert config.state.startswith("/var/lib/headrace"), "the only folder it may write to"
    done = CliRunner().invoke(app.app, ["validate", "--config", str(file), "--json"])
    assert done.exit_code == 0, done.output
    assert [view["name"] for view in json.loads(done.output)["views"]] == ["revenue_by_customer"]


def test_the_connector_is_as_init_would_write_it_and_passes_the_checks() -> None:
    words = SERVICES["register"]["command"]
    file = words[words.index("--data") + 1].removeprefix("@")
    connector = json.loads((ROOT / mounts("register")[file]).read_text())
    assert connector == EXPECTED_CONNECTOR
    assert [finding for finding in check(connector) if finding.refused] == []
    assert connector["database.password"] == "${env:PGPASSWORD}"
    assert "PGPASSWORD" in SERVICES["connect"]["environment"]
    assert words[-1] == f"http://connect:8083/connectors/{connector['topic.prefix']}/config"


def test_the_database_script_runs_and_gives_each_role_what_it_needs(postgres: EmbeddedPostgres, database: str) -> None:
    target = mounts("postgres")
    script = next(host for inside, host in target.items() if inside.startswith("/docker-entrypoint-initdb.d/"))
    environment = {"CDC_PASSWORD": "cdc-secret", "SINK_PASSWORD": "it's"}
    done = subprocess.run(
        [str(binaries() / "psql"), "--no-psqlrc", "--quiet", "--dbname", database, "--file", str(ROOT / script)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    dbname = database.rsplit("/", 1)[1]
    with psycopg.connect(postgres.url(dbname, "cdc", "cdc-secret"), autocommit=True) as cdc:
        tables = cdc.execute("select schemaname || '.' || tablename from pg_publication_tables order by 1").fetchall()
        assert tables == [("headrace.heartbeat",), ("public.customers",), ("public.orders",)]
        assert cdc.execute("select count(*) from public.orders").fetchone() == (3,)
        cdc.execute(EXPECTED_CONNECTOR["heartbeat.action.query"])
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            cdc.execute("delete from public.orders")
    with psycopg.connect(postgres.url(dbname, "headrace", "it's"), autocommit=True) as sink:
        sink.execute("create table headrace.view (id int primary key)")
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            sink.execute("select * from public.orders")
    with psycopg.connect(database, autocommit=True) as admin:
        for role in ("cdc", "headrace"):
            admin.execute(f"drop owned by {role} cascade")
            admin.execute(f"drop role {role}")


def test_postgres_is_told_to_decode() -> None:
    assert "wal_level=logical" in SERVICES["postgres"]["command"]


@pytest.mark.parametrize("service", sorted(name for name in SERVICES if "healthcheck" in SERVICES[name]))
def test_a_health_check_is_a_command_and_asks_the_services_own_port(service: str) -> None:
    test = SERVICES[service]["healthcheck"]["test"]
    assert test[0] == "CMD", "no shell in between"
    line = shlex.join(test[1:])
    inside = SERVICES[service]["ports"][0].rsplit(":", 1)[1]
    assert "127.0.0.1" in line
    assert inside in line or service in ("postgres", "kafka")
    if test[1] == "python":
        compile(test[3], "healthcheck", "exec")
    if test[1] == "pg_isready":
        assert (binaries() / "pg_isready").exists()
        known = subprocess.run([str(binaries() / "pg_isready"), "--help"], capture_output=True, text=True, check=True)
        assert all(option.split("=")[0] in known.stdout for option in test[2:])
