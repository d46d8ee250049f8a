"""An S3 server in the test process, on a free loopback port: moto, with conditional puts."""

from __future__ import annotations

from types import TracebackType

from headrace.sidecar.state.objects import S3Access

BUCKET = "headrace-tests"


class S3Server:
    """Single owner; the bucket is there once it is entered."""

    def __enter__(self) -> S3Server:
        import boto3
        from moto.server import ThreadedMotoServer

        self._server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
        self._server.start()
        host, self._port = self._server.get_host_and_port()
        port = self._port
        self.url = f"http://{host}:{port}"
        client = boto3.client(
            "s3",
            endpoint_url=self.url,
            region_name="us-east-1",
            aws_access_key_id="key",
            aws_secret_access_key="secret",
        )
        client.create_bucket(Bucket=BUCKET)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.stop()

    def pause(self) -> None:
        """Answer nobody; what it holds stays."""
        self._server.stop()

    def resume(self) -> None:
        """Answer again, at the same address."""
        from moto.server import ThreadedMotoServer

        self._server = ThreadedMotoServer("127.0.0.1", self._port, verbose=False)
        self._server.start()

    def access(self, prefix: str) -> S3Access:
        """A place of its own in the bucket."""
        return S3Access(BUCKET, prefix, self.url, "us-east-1", "key", "secret")
