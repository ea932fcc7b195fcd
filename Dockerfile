# One image for both daemons: the command says which.
#   docker build -t triomq .
#   docker run -p 9876:9876 triomq mqnamesrv
FROM python:3.12 AS build

WORKDIR /src
COPY pyproject.toml setup.py compiled.txt README.md LICENSE NOTICE ./
COPY bin ./bin
COPY src ./src
COPY protocol ./protocol
COPY daemon ./daemon
COPY remoting ./remoting
COPY store ./store
COPY namesrv ./namesrv
COPY broker ./broker
COPY client ./client
COPY spark ./spark
COPY admin ./admin
# The hot modules are compiled here, where the compiler is; the image itself has none.
RUN ./bin/build --wheel /wheels

FROM python:3.12-slim

COPY --from=build /wheels /tmp/wheels
RUN pip install --no-cache-dir --disable-pip-version-check "$(ls /tmp/wheels/*.whl)[compression]" && rm -r /tmp/wheels
WORKDIR /opt/triomq
COPY conf ./conf

# Messages and logs belong to an account that can do nothing else, below its home; mount a volume there to keep them.
RUN useradd --create-home --home-dir /var/lib/triomq --uid 10911 triomq \
    && install -d -o triomq -g triomq /var/lib/triomq/store
USER triomq
VOLUME /var/lib/triomq
ENV ROCKETMQ_HOME=/opt/triomq HOME=/var/lib/triomq TRIOMQ_LOG_DIR=-
WORKDIR /var/lib/triomq
EXPOSE 9876 10909 10911 10912
STOPSIGNAL SIGTERM
CMD ["mqbroker", "-c", "/opt/triomq/conf/broker.conf"]
