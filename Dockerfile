# The sidecar alone: pinned dependencies with their hashes, machine code of the kernels inside, an unprivileged user, and a
# root that may be read-only: it writes to its two volumes and nowhere else.

# The Python that tests and lock files are made with. A digest is not written here, since no registry could be asked for it
# when this was written; pin one yourself with `docker build --build-arg BASE=python@sha256:…`.
ARG BASE=python:3.11-slim-bookworm

FROM ${BASE} AS build
WORKDIR /src
RUN python -m venv /opt/headrace
ENV PATH=/opt/headrace/bin:$PATH PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
COPY requirements-run.lock ./
RUN pip install --require-hashes --requirement requirements-run.lock
COPY pyproject.toml README.md LICENSE ./
COPY engine engine
COPY views views
COPY connectors connectors
COPY sidecar sidecar
# what is imported: links to the four folders
COPY headrace headrace
RUN pip install --no-deps .
# Kernels for the generic CPU of this architecture: the first view need not wait for a compiler. They are cached by the place
# of their sources, so they are compiled from the installed package, and not from /src.
WORKDIR /opt/headrace
ENV NUMBA_CPU_NAME=generic NUMBA_CACHE_DIR=/opt/headrace/kernels
RUN python -c "from headrace.engine import kernels; kernels.warm()"

FROM ${BASE}
RUN groupadd --system --gid 10001 headrace \
    && useradd --system --uid 10001 --gid headrace --home-dir /var/lib/headrace --create-home headrace
COPY --from=build /opt/headrace /opt/headrace
ENV PATH=/opt/headrace/bin:$PATH NUMBA_CPU_NAME=generic NUMBA_CACHE_DIR=/opt/headrace/kernels PYTHONUNBUFFERED=1
# by number, which Kubernetes' runAsNonRoot asks for
USER 10001:10001
WORKDIR /var/lib/headrace
VOLUME ["/var/lib/headrace", "/tmp"]
EXPOSE 8088
# over the socket in the state folder, whatever `http:` says
HEALTHCHECK --interval=30s --timeout=10s --start-period=5m --retries=3 \
    CMD ["headrace", "status", "--config", "/etc/headrace/headrace.yaml"]
ENTRYPOINT ["headrace"]
CMD ["run", "--config", "/etc/headrace/headrace.yaml"]
