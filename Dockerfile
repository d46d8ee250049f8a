# The sidecar alone: pinned dependencies with their hashes, machine code of the kernels inside, an unprivileged user.
FROM python:3.13-slim AS build
WORKDIR /src
RUN python -m venv /opt/headrace
ENV PATH=/opt/headrace/bin:$PATH PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
COPY requirements-run.lock ./
RUN pip install --require-hashes --requirement requirements-run.lock
COPY pyproject.toml README.md ./
COPY engine engine
COPY views views
COPY connectors connectors
COPY sidecar sidecar
RUN pip install --no-deps .
# kernels for the generic CPU of this architecture: the first view need not wait for a compiler
ENV NUMBA_CPU_NAME=generic NUMBA_CACHE_DIR=/opt/headrace/kernels
RUN python -c "from engine import kernels; kernels.warm()"

FROM python:3.13-slim
RUN useradd --system --uid 10001 --home-dir /var/lib/headrace --create-home headrace
COPY --from=build /opt/headrace /opt/headrace
ENV PATH=/opt/headrace/bin:$PATH NUMBA_CPU_NAME=generic NUMBA_CACHE_DIR=/opt/headrace/kernels PYTHONUNBUFFERED=1
USER headrace
WORKDIR /var/lib/headrace
VOLUME /var/lib/headrace
EXPOSE 8088
ENTRYPOINT ["headrace"]
CMD ["run", "--config", "/etc/headrace/headrace.yaml"]
