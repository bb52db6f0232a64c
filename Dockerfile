FROM rust:1-bookworm AS build
WORKDIR /src
COPY . .
RUN cargo build --profile dist --locked --bin context-service --bin context-gateway

FROM debian:bookworm-slim
RUN useradd --uid 10001 --no-create-home context && install --directory --owner context --mode 0700 /data
COPY --from=build /src/target/dist/context-service /src/target/dist/context-gateway /usr/local/bin/
USER context
ENV DB_PATH=/data/contexts.db CONTEXT_SOCKET=/data/context.sock
EXPOSE 7420
ENTRYPOINT ["context-service"]
