# erda serve in a container: slim, not root, made for a read-only root file system.
#   docker build -t erda .
#   docker compose up        (compose.yaml)
FROM python:3.12-slim AS build
WORKDIR /src
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY src src
RUN python -m venv /venv \
 && /venv/bin/pip install --no-cache-dir -c constraints.txt '.[serve]'

FROM python:3.12-slim
RUN useradd --uid 10001 --create-home erda && mkdir /data && chown erda /data
COPY --from=build /venv /venv
ENV PATH=/venv/bin:$PATH PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1 ERDA_CACHE=/tmp/erda
USER erda
VOLUME /data
EXPOSE 8111
HEALTHCHECK --interval=30s --timeout=5s --start-period=20s CMD ["python", "-c", \
  "import urllib.request as u; u.urlopen('http://127.0.0.1:8111/health', timeout=4)"]
# The token lies in the volume; it is created at the first start and is part of the printed address.
CMD ["erda", "serve", "/data/store", "--host", "0.0.0.0", "--token-file", "/data/token", "--no-browser"]
