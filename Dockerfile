# Two images. `service` answers and holds no torch; `training` makes bundles and carries the demo with its data.
#
#   docker build --target service -t nextitem-service .
#   docker build --target training -t nextitem-training .
#
# docker-compose.yml builds both; docker-compose.gpu.yml builds `service` for CUDA. What the oldest BuildKit around
# (Docker 20.10) understands is enough: no frontend is pulled.
ARG BASE=python:3.11-slim-bookworm

FROM ${BASE} AS python
# CUDA's images bring no Python. Ubuntu removes superseded versions, so that a pinned one stops building.
# hadolint ignore=DL3008
RUN command -v python3 >/dev/null \
    || { apt-get update && apt-get install -y --no-install-recommends python3 && rm -rf /var/lib/apt/lists/*; }

FROM python AS build
# hadolint ignore=DL3008
RUN python3 -c 'import ensurepip, venv' 2>/dev/null \
    || { apt-get update && apt-get install -y --no-install-recommends python3-venv && rm -rf /var/lib/apt/lists/*; }
ENV PIP_DISABLE_PIP_VERSION_CHECK=1
# What builds stays in an environment of its own; the one that is shipped has not even pip.
RUN --mount=type=cache,target=/root/.cache/pip \
    python3 -m venv /opt/build && /opt/build/bin/pip install hatchling==1.27.0 \
    && python3 -m venv --without-pip /opt/nextitem
ENV PATH=/opt/build/bin:$PATH
WORKDIR /src
COPY pyproject.toml constraints.txt ./
# pip reads extras from a package only: a hollow one, so that the layers below do not depend on the code.
RUN mkdir model nextitem service training && touch README.md

FROM build AS service-packages
ARG EXTRA=service
RUN --mount=type=cache,target=/root/.cache/pip \
    pip --python /opt/nextitem/bin/python install -c constraints.txt ".[${EXTRA}]" \
    && pip --python /opt/nextitem/bin/python uninstall -y nextitem \
    && find /opt/nextitem -depth -type d -name tests -exec rm -r {} +

FROM build AS training-packages
# The service's packages are few beside PyTorch: with them the demo can say which model answers (`nextitem-serve models`).
# PyTorch comes first and by itself: its CPU build where this index answers within two seconds, else the plain index's,
# which is gigabytes larger. pip prefers 2.13.0+cpu to 2.13.0, so that an extra index is enough. Builds differ in which of
# the folders they have that nobody needs here.
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
RUN --mount=type=cache,target=/root/.cache/pip \
    index=; if python -c "import urllib.request as r; r.urlopen('${TORCH_INDEX}/torch/', timeout=2)" 2>/dev/null; \
    then index="--extra-index-url=${TORCH_INDEX}"; fi; \
    pip --python /opt/nextitem/bin/python install -c constraints.txt ${index} torch \
    && rm -rf /opt/nextitem/lib/python3*/site-packages/torch/include /opt/nextitem/lib/python3*/site-packages/torch/test \
    && find /opt/nextitem/lib/python3*/site-packages/torch -path '*/torch/bin/*' -type f ! -name torch_shm_manager -delete
RUN --mount=type=cache,target=/root/.cache/pip \
    pip --python /opt/nextitem/bin/python install -c constraints.txt ".[training,service]" \
    && pip --python /opt/nextitem/bin/python uninstall -y nextitem \
    && find /opt/nextitem -depth -type d -name tests -exec rm -r {} +

# MovieLens is for research use and must not be passed on: do not push an image with it to a public registry.
FROM build AS data
RUN --mount=type=cache,target=/root/.cache/pip pip install -c constraints.txt httpx polars rich
COPY model/__init__.py model/
COPY model/contract/__init__.py model/contract/atomic_files.py model/contract/
COPY training/__init__.py training/errors.py training/
COPY training/data/__init__.py training/data/download.py training/data/movielens.py training/data/
RUN --mount=type=cache,target=/root/.cache/pip \
    python -c "from pathlib import Path; from training.data.movielens import DATA_SETS, fetch; found = DATA_SETS['ml-100k']; print(found.licence); fetch(found, Path('/data/ml-100k'))"

# The code alone, as it lies in the environment: a change of it rebuilds and ships this layer only.
FROM build AS code
COPY README.md ./
COPY model/ model/
COPY nextitem/ nextitem/
COPY service/ service/
COPY training/ training/
RUN pip wheel --no-cache-dir --no-deps --no-build-isolation --wheel-dir /wheels . \
    && pip --python /opt/nextitem/bin/python install --no-cache-dir --no-deps --root /code /wheels/*.whl

FROM python AS runtime
RUN useradd --uid 10001 --user-group --no-create-home --home-dir /tmp --shell /usr/sbin/nologin nextitem
# Nothing is written but under /tmp and volumes: byte code is compiled at build, HOME is /tmp.
ENV PATH=/opt/nextitem/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    ORT_DISABLE_TELEMETRY=1 \
    HOME=/tmp

FROM runtime AS training
# Threads that wait sleep. Spinning, as is OpenMP's default, training on two cores drops from 60,000 tokens a second to
# as few as 1,000 when other containers want the cores; sleeping, it keeps 35,000.
ENV OMP_WAIT_POLICY=PASSIVE
COPY --from=training-packages /opt/nextitem /opt/nextitem
COPY --from=data /data /data
COPY --from=code /code /
WORKDIR /app
COPY demo/ demo/
COPY training/recipes/ training/recipes/
LABEL org.opencontainers.image.title="nextitem-training" \
      org.opencontainers.image.description="Makes next-item recommenders from interaction logs; with MovieLens-100K, for research use"
USER 10001:10001
# As Ctrl-C: what was trained so far is saved.
STOPSIGNAL SIGINT
CMD ["nextitem-train", "--help"]

# The last target is what a plain `docker build .` makes.
FROM runtime AS service
COPY --from=service-packages /opt/nextitem /opt/nextitem
RUN python -c "import importlib.util as u, sys; sys.exit(' '.join(filter(u.find_spec, ('torch', 'onnx'))) or None)"
COPY --from=code /code /
RUN install -d -o 10001 -g 10001 /data
# Inside a container the loopback address reaches nobody; which ports are published, and where, is the host's decision.
ENV NEXTITEM_HOST=0.0.0.0 \
    NEXTITEM_PORT=8000 \
    NEXTITEM_BUNDLE=/bundles \
    NEXTITEM_DATA_DIR=/data
LABEL org.opencontainers.image.title="nextitem-service" \
      org.opencontainers.image.description="Serves next-item recommendations from a bundle"
USER 10001:10001
EXPOSE 8000
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=5s --timeout=4s --start-period=60s --retries=3 \
    CMD ["python", "-c", "import os, sys; from http.client import HTTPConnection as C; c = C('127.0.0.1', int(os.environ['NEXTITEM_PORT']), timeout=3); c.request('GET', '/health/ready'); sys.exit(c.getresponse().status != 200)"]
ENTRYPOINT ["nextitem-serve"]
