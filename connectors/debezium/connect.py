"""A client of Kafka Connect's REST: registers a connector, waits for it, finds it by its prefix, checks it.

Plain `http.client`: four small JSON requests do not justify another dependency. Invariant: a refusal names Connect's address
and answer, and never shows a password. The sidecar and the embedded stack call it.
"""

from __future__ import annotations

import base64
import http.client
import json
import time
import urllib.parse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from headrace.connectors.debezium.config_rules import Finding, check
from headrace.engine.errors import HeadraceError

_RETRY_PAUSE = 0.1


class ConnectError(HeadraceError):
    """Kafka Connect cannot be reached, refused a request, or has no such connector."""

    code = "connect"


@dataclass(frozen=True)
class Checked:
    """A registered connector, its state as Connect tells it (RUNNING, PAUSED, FAILED …), and what is wrong with it."""

    name: str
    state: str
    config: Mapping[str, str]
    findings: tuple[Finding, ...]


@dataclass(frozen=True)
class _Answer:
    status: int
    body: object

    @property
    def message(self) -> str:
        if isinstance(self.body, dict):
            return str(self.body.get("message", self.body))
        return str(self.body)[:200]


def register(
    connect_url: str,
    name: str,
    config: Mapping[str, str],
    *,
    timeout: float = 60.0,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> bool:
    """Create the connector, or give an existing one this configuration; True if it is new.

    Waits up to `timeout` seconds for Connect to be up (refused connections, Jetty's own HTML 404) and to end a
    rebalance (409). Raises ConnectError, at once for a configuration that Connect refuses.
    """
    _address(connect_url)  # a wrong one is told at once, not after the deadline
    deadline = clock() + timeout
    path = f"/connectors/{urllib.parse.quote(name, safe='')}/config"
    while True:
        try:
            answer = _request(connect_url, "PUT", path, dict(config))
        except ConnectError:
            if clock() >= deadline:
                raise
        else:
            if answer.status in (200, 201):
                return answer.status == 201
            if not _not_yet(answer) or clock() >= deadline:
                raise _refusal(connect_url, answer, f"Kafka Connect did not take connector {name}", config)
        sleep(_RETRY_PAUSE)


def invalid(connect_url: str, config: Mapping[str, str]) -> str:
    """What Connect finds wrong with a configuration, references to its config providers resolved; "" for nothing. It asks the
    database too. Raises ConnectError where it does not answer."""
    plugin = urllib.parse.quote(config["connector.class"].rpartition(".")[2], safe="")
    answer = _request(connect_url, "PUT", f"/connector-plugins/{plugin}/config/validate", {"name": "valid", **config})
    if answer.status != 200 or not isinstance(answer.body, dict):
        return answer.message
    found = [(c["value"]["name"], e) for c in answer.body.get("configs", ()) for e in c["value"].get("errors", ())]
    return "; ".join(f"{name}: {error}" for name, error in found)


def wait_running(
    connect_url: str,
    name: str,
    *,
    timeout: float = 60.0,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Return when the connector's task runs. Raises ConnectError when it failed, with its reason, or never ran.

    Right after a restart of Connect the state may be a stale record: `pg_replication_slots.active` is the surer sign.
    """
    deadline = clock() + timeout
    path = f"/connectors/{urllib.parse.quote(name, safe='')}/status"
    while True:
        answer = _request(connect_url, "GET", path)
        state, trace = _state(answer.body)
        if answer.status == 200 and state == "RUNNING":
            return
        if answer.status == 200 and state == "FAILED":
            raise ConnectError(
                f"connector {name} failed: {trace}", connect=shown_url(connect_url), hint=_failed_hint(name)
            )
        if clock() >= deadline:
            raise ConnectError(
                f"connector {name} does not run after {timeout:g} s", connect=shown_url(connect_url),
                state=state or "none", hint="look at Connect's log",
            )  # fmt: skip
        sleep(_RETRY_PAUSE)


def registered(connect_url: str) -> dict[str, tuple[str, Mapping[str, str]]]:
    """Every registered connector: name → (state of its task, or of itself while it has none; configuration)."""
    answer = _request(connect_url, "GET", "/connectors?expand=info&expand=status")
    if answer.status != 200 or not isinstance(answer.body, dict):
        raise _refusal(connect_url, answer, "Kafka Connect does not list its connectors")
    return {
        name: (_state(entry.get("status"))[0], entry.get("info", {}).get("config", {}))
        for name, entry in answer.body.items()
    }


@dataclass(frozen=True)
class Described:
    """A connector as Connect shows it. `tasks`: each its state and its trace, "" where it has none."""

    name: str
    state: str
    trace: str
    tasks: tuple[tuple[str, str], ...]
    config: Mapping[str, str]


def describe(connect_url: str, topic_prefix: str) -> list[Described]:
    """The connectors that write `topic_prefix`, by name. Raises ConnectError."""
    answer = _request(connect_url, "GET", "/connectors?expand=info&expand=status")
    if answer.status != 200 or not isinstance(answer.body, dict):
        raise _refusal(connect_url, answer, "Kafka Connect does not list its connectors")
    found = []
    for name, entry in sorted(answer.body.items()):
        config = entry.get("info", {}).get("config", {})
        if config.get("topic.prefix") == topic_prefix:
            status = entry.get("status", {})
            own = status.get("connector", {})
            tasks = tuple((str(t.get("state", "")), str(t.get("trace", ""))) for t in status.get("tasks", ()))
            found.append(Described(name, str(own.get("state", "")), str(own.get("trace", "")), tasks, config))
    return found


def check_registered(
    connect_url: str,
    topic_prefix: str,
    captured: Mapping[str, Sequence[str]] | None = None,
    declared: Mapping[str, str] | None = None,
) -> Checked:
    """Find the connector that writes `topic_prefix` and check it (see `checks.check` for the rest).

    Raises ConnectError when Connect cannot be reached, no connector has that prefix, or more than one has.
    """
    every = registered(connect_url)
    mine = sorted(name for name, (_, config) in every.items() if config.get("topic.prefix") == topic_prefix)
    if not mine:
        others = sorted({p for _, c in every.values() if (p := c.get("topic.prefix"))})
        raise ConnectError(
            f"no connector writes the prefix {topic_prefix}", connect=shown_url(connect_url),
            prefixes=", ".join(others) or "none",
            hint="register it with `headrace init --register`, or correct topic_prefix in headrace.yaml",
        )  # fmt: skip
    if len(mine) > 1:
        raise ConnectError(
            f"{len(mine)} connectors write the prefix {topic_prefix}", connect=shown_url(connect_url),
            connectors=", ".join(mine),
            hint="keep one: their transactions cannot be told apart",
        )  # fmt: skip
    state, config = every[mine[0]]
    return Checked(mine[0], state, config, tuple(check(config, captured, declared)))


def _request(url: str, method: str, path: str, body: object = None) -> _Answer:
    """One request. Raises ConnectError when nothing answers; every HTTP status is an answer."""
    parts, host = _address(url)
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = kind(host, parts.port, timeout=30)
    headers = {"Content-Type": "application/json", "Accept": "application/json"}
    if parts.username is not None:
        secret = f"{urllib.parse.unquote(parts.username)}:{urllib.parse.unquote(parts.password or '')}"
        headers["Authorization"] = "Basic " + base64.b64encode(secret.encode()).decode()
    try:
        connection.request(method, parts.path.rstrip("/") + path, None if body is None else json.dumps(body), headers)
        response = connection.getresponse()
        text = response.read().decode("utf-8", "replace")
    except (OSError, http.client.HTTPException) as error:
        raise ConnectError(
            f"Kafka Connect does not answer: {error}",
            connect=shown_url(url),
            hint="is it running, and is the address right?",
        ) from error
    finally:
        connection.close()
    try:
        return _Answer(response.status, json.loads(text) if text else None)
    except ValueError:
        return _Answer(response.status, text)


def _address(url: str) -> tuple[urllib.parse.SplitResult, str]:
    parts = urllib.parse.urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConnectError("not an address of Kafka Connect", connect=shown_url(url), hint="write http://host:8083")
    return parts, parts.hostname


def _not_yet(answer: _Answer) -> bool:
    """A rebalance (409, or 5xx without a leader), or Jetty's own page before Connect's resources are there."""
    return answer.status in (409, 502, 503) or (answer.status == 404 and isinstance(answer.body, str))


def _refusal(url: str, answer: _Answer, what: str, config: Mapping[str, str] | None = None) -> ConnectError:
    message = answer.message
    for name, value in (config or {}).items():
        if "password" in name and value:
            message = message.replace(value, "***")
    return ConnectError(
        f"{what}: {message}", connect=shown_url(url), status=answer.status, hint="correct the setting it names"
    )


def _state(status: object) -> tuple[str, str]:
    """The first task's state and the first line of its trace; the connector's own while it has no task."""
    if not isinstance(status, dict) or "connector" not in status:
        return "", ""
    tasks = status.get("tasks") or []
    shown = tasks[0] if tasks else status["connector"]
    lines = str(shown.get("trace", "")).splitlines()
    causes = [line for line in lines if line.startswith("Caused by:")]
    state = str(shown.get("state", ""))
    if not tasks and state == "RUNNING":
        state = "UNASSIGNED"  # a connector that runs without a task reads nothing
    return state, (causes[-1] if causes else lines[0] if lines else "")


def _failed_hint(name: str) -> str:
    return f"correct the cause, then restart it: POST /connectors/{name}/restart?includeTasks=true"


def shown_url(url: str) -> str:
    """The address without its user and password."""
    parts = urllib.parse.urlsplit(url)
    return urllib.parse.urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))
