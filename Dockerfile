FROM rust:1-bookworm AS build
WORKDIR /src
COPY . .
RUN cargo build --profile dist --locked --bin context-service --bin context-gateway

FROM debian:bookworm-slim
RUN apt-get update \
    && apt-get install --yes --no-install-recommends ca-certificates \
    && rm -rf /var/lib/apt/lists/*
# A volume mounted on /data or /cache takes its owner from here.
RUN useradd --uid 10001 --no-create-home context \
    && install --directory --owner context --group context --mode 0700 /data /cache
COPY --from=build /src/target/dist/context-service /src/target/dist/context-gateway /usr/local/bin/
USER context
# fetch-model writes below XDG_CACHE_HOME.
ENV DB_PATH=/data/contexts.db CONTEXT_SOCKET=/data/context.sock XDG_CACHE_HOME=/cache
EXPOSE 7420 7421
ENTRYPOINT ["context-service"]
