# One image for both daemons; the command selects one.
#   docker build -t triomq --build-arg VERSION="$(python3 src/triomq/_version.py)" .
#   docker run -p 9876:9876 -e TRIOMQ_HEALTH="namesrv 9876" triomq mqnamesrv
FROM python:3.12 AS build

WORKDIR /src
COPY pyproject.toml setup.py compiled.txt README.md LICENSE NOTICE ./
COPY bin ./bin
COPY src ./src
COPY protocol ./protocol
COPY daemon ./daemon
COPY dledger ./dledger
COPY http2 ./http2
COPY grpc_front ./grpc_front
COPY remoting ./remoting
COPY monitoring ./monitoring
COPY dashboard ./dashboard
COPY store ./store
COPY namesrv ./namesrv
COPY broker ./broker
COPY client ./client
COPY spark ./spark
COPY pipeline ./pipeline
COPY admin ./admin
COPY pipeline ./pipeline
# The image's context has no .git directory that would tell the version.
ARG VERSION=0.1.0
# The hot modules are compiled in this stage; the image itself has no compiler.
RUN TRIOMQ_VERSION=${VERSION} ./bin/build --wheel /wheels

FROM python:3.12-slim

ARG VERSION=0.1.0
LABEL org.opencontainers.image.title="TrioMQ" \
      org.opencontainers.image.description="A broker and a NameServer compatible with Apache RocketMQ 4.9" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.licenses="Apache-2.0"

COPY --from=build /wheels /tmp/wheels
RUN pip install --no-cache-dir --disable-pip-version-check "$(ls /tmp/wheels/*.whl)[compression]" && rm -r /tmp/wheels
WORKDIR /opt/triomq
COPY conf ./conf

# Messages belong to an unprivileged account and lie below its home; mount a volume there to keep them.
RUN useradd --create-home --home-dir /var/lib/triomq --uid 10911 triomq \
    && install -d -o triomq -g triomq /var/lib/triomq/store
USER triomq
VOLUME /var/lib/triomq
ENV ROCKETMQ_HOME=/opt/triomq HOME=/var/lib/triomq TRIOMQ_LOG_DIR=-
WORKDIR /var/lib/triomq
EXPOSE 8081 9876 10909 10911 10912
STOPSIGNAL SIGTERM
# The daemon and the port that are checked, see `python -m triomq.daemon.health -h`. A recovery after a crash may take
# minutes, in which the ports are not yet open.
ENV TRIOMQ_HEALTH="broker 10911"
HEALTHCHECK --interval=10s --timeout=6s --start-period=5m --retries=3 CMD python -m triomq.daemon.health $TRIOMQ_HEALTH
CMD ["mqbroker", "-c", "/opt/triomq/conf/broker.conf"]
