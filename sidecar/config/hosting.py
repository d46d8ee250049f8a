"""The parts of `headrace.yaml` about hosts and stores: where workers run, and where the state is kept.

Always: as in `headrace.sidecar.config.config`, of whose model they are parts: a value that passed is usable as it is.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field, SecretStr, field_validator, model_validator

from headrace.views.yaml_models import StrictModel


class StoreConfig(StrictModel):
    """How to reach the store that `state` names by a URL, and what is kept of it on this machine."""

    folder: str = Field(
        default="./state",
        description="this machine's folder: its control socket and what was fetched; it may be lost",
    )
    endpoint: str | None = Field(default=None, description="the S3 server; AWS_ENDPOINT_URL, or Amazon's, unless given")
    region: str | None = Field(default=None, description="AWS_REGION unless given")
    access_key_id: str | None = Field(
        default=None, description="AWS_ACCESS_KEY_ID, or the machine's role, unless given"
    )
    secret_access_key: SecretStr | None = Field(
        default=None, description="AWS_SECRET_ACCESS_KEY unless given; workers are sent it, so prefer their environment"
    )
    grace_seconds: float = Field(
        default=900.0, ge=0, description="how long a batch that no checkpoint names any more is left for its readers"
    )


class SparkConfig(StrictModel):
    """The cluster on which workers run as tasks of one Spark job."""

    master: str | None = Field(
        default=None,
        min_length=1,
        description="spark://host:port, k8s://…, yarn, local[n]; absent: the session of the job that calls us",
    )
    python: str | None = Field(
        default=None,
        min_length=1,
        description="a packed environment (.tar.gz) that executors unpack, or the path of a Python there; absent: this "
        "interpreter for a master on this machine, else `python3`",
    )
    ports: str | None = Field(
        default=None,
        pattern=r"^\d{4,5}-\d{4,5}$",
        description="ports that driver and workers listen on, first-last; any unless given",
    )
    tls: bool | None = Field(
        default=None,
        description="encrypt what driver and workers say to each other; unless given, where `conf` encrypts Spark's own "
        "connections",
    )
    conf: dict[str, str] = Field(default_factory=dict, description="any Spark setting; passed through")

    @field_validator("conf")
    @classmethod
    def _settings(cls, conf: dict[str, str]) -> dict[str, str]:
        for name, value in conf.items():
            if not name.startswith("spark."):
                raise ValueError(f"{name} is no setting of Spark: they begin with spark.")
            if name in REFUSED_CONF and value.lower() != "false":
                raise ValueError(f"{name} does not go with workers that hold state: {REFUSED_CONF[name]}")
        return conf

    @property
    def is_encrypted(self) -> bool:
        """Whether connections between driver and workers are to be encrypted."""
        asked = any(self.conf.get(name, "").lower() == "true" for name in ENCRYPTING_CONF)
        return asked if self.tls is None else self.tls


ENCRYPTING_CONF = ("spark.ssl.enabled", "spark.ssl.rpc.enabled", "spark.network.crypto.enabled")
REFUSED_CONF = {
    "spark.dynamicAllocation.enabled": "executors that Spark takes away take their shards with them; set it to false",
    "spark.speculation": "a second attempt of a shard would be a second writer; set it to false",
}


STEP_WORK = 3_000_000
"""What a recursion may do in a step unless the configuration says otherwise: a fraction of a second."""


class EngineConfig(StrictModel):
    """How the views are computed."""

    host: Literal["local", "spark"] = Field(
        default="local", description="where workers run: processes of this machine, or tasks of one long Spark job"
    )
    workers: int = Field(
        default=1,
        ge=1,
        le=64,
        description="processes that share the tables' rows by their keys; 1: all in the sidecar's own process, on Spark one task",
    )
    intake: Literal["driver", "shards"] = Field(
        default="driver",
        description="who reads and decodes the sources' topics: the sidecar's own process, or the workers, each its share of "
        "the partitions; the sidecar is then told which transactions there are, and carries no rows",
    )
    step_work: int = Field(
        default=STEP_WORK,
        ge=0,
        description="counted work of a recursion in one step: the rows that its rounds look at and derive, and 3000 for each "
        "piece of a round. A recursive view that takes more is late: it is evaluated between steps, while all other views go on. "
        "0: any number",
    )
    spark: SparkConfig = Field(default_factory=SparkConfig)

    @model_validator(mode="after")
    def _shards_are_workers(self) -> EngineConfig:
        if self.intake == "shards" and self.host == "local" and self.workers == 1:
            raise ValueError(
                "intake: shards needs workers that read: set workers to 2 or more, or leave intake: driver"
            )
        return self
