# plegd in an image of one static binary. Build: make image, or
#   docker build -t plegd .        (buildah build -t plegd . works as well)
# By digest, so that a tag that moves changes no build; dependabot raises it.
FROM golang:1.26@sha256:3aff6657219a4d9c14e27fb1d8976c49c29fddb70ba835014f477e1c70636647 AS build
WORKDIR /src
# The modules first: they change less often than the code.
COPY go.mod go.sum ./
RUN go mod download
COPY . .
ARG TARGETARCH
ARG VERSION=0.0.0-unknown
ARG REVISION=unknown
ARG BUILD_DATE=
RUN make build GOARCH=${TARGETARCH} VERSION=${VERSION} REVISION=${REVISION} BRANCH= BUILD_DATE=${BUILD_DATE} \
 && mkdir -p /rootfs/usr/bin /rootfs/run/plegd /rootfs/var/lib/plegd \
 && cp build/plegd /rootfs/usr/bin/plegd

# scratch: no shell, no libc, no package to patch. plegd starts no process and
# looks up no name, so nothing else is needed.
FROM scratch
COPY --from=build /rootfs/ /
ARG VERSION=0.0.0-unknown
ARG REVISION=unknown
ARG BUILD_DATE=
LABEL org.opencontainers.image.title="plegd" \
      org.opencontainers.image.description="Relists a Kubernetes node's container runtime as the kubelet's PLEG does, and says why it fails" \
      org.opencontainers.image.source="https://github.com/plegd/plegd" \
      org.opencontainers.image.documentation="https://github.com/plegd/plegd/blob/main/README.md" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.created="${BUILD_DATE}"
# root on purpose. The runtime's socket is root:root 0660 on every distribution,
# and whoever may open it is root on the node in effect; another user here would
# only look safer. plegd needs one capability, SYS_PTRACE, to read where a thread of
# the runtime waits in the kernel: drop all others, mount the root file
# system read-only, and give it the host's pid and network namespaces (it reads
# the runtime's processes and the accept queue of its socket).
USER 0:0
EXPOSE 20290/tcp
ENTRYPOINT ["/usr/bin/plegd"]
CMD ["run"]
