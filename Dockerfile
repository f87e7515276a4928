# The operator's image: docker build -t registry.example.com/forebay:0.1.0 .
# Every package is the one that requirements/ names by its hash; nothing is compiled.
# To have the same base every time, name it by its digest: --build-arg BASE=python:3.13-slim-bookworm@sha256:...
ARG BASE=python:3.13-slim-bookworm
FROM ${BASE} AS build
# With requirements/telemetry.txt instead, the image can send traces and crash reports.
ARG REQUIREMENTS=requirements/run.txt
WORKDIR /build
ENV UV_LINK_MODE=copy UV_COMPILE_BYTECODE=1 UV_NO_CACHE=1 UV_PYTHON_DOWNLOADS=never
COPY requirements/ requirements/
RUN pip install --no-cache-dir --require-hashes -r requirements/uv.txt
RUN uv venv --python python3 /opt/forebay
RUN uv pip sync --python /opt/forebay/bin/python --require-hashes --no-build ${REQUIREMENTS}
COPY pyproject.toml README.md LICENSE ./
COPY src/ src/
RUN uv build --wheel --require-hashes --build-constraint requirements/build.txt --out-dir dist .
RUN uv pip install --python /opt/forebay/bin/python --no-deps --no-index dist/*.whl

FROM ${BASE}
# What installs packages has no place where packages are only run.
RUN pip uninstall --yes --root-user-action=ignore pip
COPY --from=build /opt/forebay /opt/forebay
ENV PATH=/opt/forebay/bin:$PATH HOME=/tmp PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
# A number, so that Kubernetes can see that it is not root.
USER 65532:65532
EXPOSE 8080
# Work stops and the lease is given back.
STOPSIGNAL SIGTERM
ENTRYPOINT ["forebay"]
CMD ["run"]
