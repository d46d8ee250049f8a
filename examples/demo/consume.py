"""Print a topic as it grows: `python -m examples.demo.consume BOOTSTRAP TOPIC`. Ends at Ctrl-C."""

from __future__ import annotations

import contextlib
import sys
import uuid

from confluent_kafka import Consumer


def main(bootstrap: str, topic: str) -> None:
    """One line a message: epoch, key, value."""
    settings = {"bootstrap.servers": bootstrap, "group.id": f"show-{uuid.uuid4().hex[:8]}",
                "auto.offset.reset": "earliest", "isolation.level": "read_committed"}  # fmt: skip
    consumer = Consumer(settings)
    consumer.subscribe([topic])
    try:
        while True:
            message = consumer.poll(1.0)
            if message is not None and message.error() is None:
                epoch = _text(dict(message.headers() or ()).get("epoch"))
                sys.stdout.write(f"{epoch}\t{_text(message.key())}\t{_text(message.value()) or 'gone'}\n")
                sys.stdout.flush()
    finally:
        consumer.close()


def _text(data: str | bytes | None) -> str:
    return data.decode() if isinstance(data, bytes) else data or ""


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        main(sys.argv[1], sys.argv[2])
