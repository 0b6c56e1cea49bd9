# The image of kruise-probe; hack/image makes the same content where there is no Docker.
FROM python:3.13-slim@sha256:7c61056e61ac89e852de05f3dc6fa51a6dd2181797bceed46aa725dd7cb2cd3b AS build
WORKDIR /src
COPY requirements/constraints.txt ./requirements/
RUN pip install --no-cache-dir --require-hashes --target /opt/kruise-probe --requirement requirements/constraints.txt
COPY pyproject.toml README.md LICENSE ./
COPY kruise_probe ./kruise_probe
RUN PYTHONPATH=/opt/kruise-probe pip install --no-cache-dir --no-deps --no-build-isolation --target /opt/kruise-probe . \
    # not used: the official client's asyncio half with its libraries, and what built the package
    && cd /opt/kruise-probe && rm -rf bin kubernetes/aio hatchling* editables* pathspec* pluggy* tomlkit* trove_classifiers* aiohttp* aiosignal* aiohappyeyeballs* frozenlist* multidict* propcache* yarl* \
    && python -m compileall -q --invalidation-mode unchecked-hash .

FROM python:3.13-slim@sha256:7c61056e61ac89e852de05f3dc6fa51a6dd2181797bceed46aa725dd7cb2cd3b
COPY --from=build /opt/kruise-probe /opt/kruise-probe
# Nothing is written at run time: the root file system may be read-only.
ARG COMMIT=
ENV PYTHONPATH=/opt/kruise-probe PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1 KRUISE_PROBE_COMMIT=$COMMIT
USER 65532:65532
ENTRYPOINT ["python", "-m", "kruise_probe"]
