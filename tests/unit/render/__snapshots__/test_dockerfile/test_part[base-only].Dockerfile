# Rendered by coop. Each line is a layer; nothing is copied in: docker build - < Dockerfile
# docker.io/library/debian:bookworm-slim
FROM docker.io/library/debian:bookworm-slim
USER 0:0
WORKDIR /
