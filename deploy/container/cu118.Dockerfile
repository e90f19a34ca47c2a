# The stack `cu118` of benchmarks/stacks.toml as an image; README.md beside this file says how it is used.
# Its CUDA libraries are those of the wheels that stacks.toml pins, whatever the base brings; the driver is the host's.
FROM nvidia/cuda:11.8.0-runtime-ubuntu22.04 AS base
# Triton and Inductor compile while they run, with a compiler and Python's headers.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install -y --no-install-recommends g++ python3.11 python3.11-dev \
    && rm -rf /var/lib/apt/lists/*

FROM base AS build
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install -y --no-install-recommends python3.11-venv \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /opt/cuda-gains
COPY . .
RUN python3.11 -m venv /opt/venv
ENV PATH=/opt/venv/bin:$PATH
RUN python -m bench_lib.containers.pins cu118 > /tmp/pins.txt \
    && pip install --no-cache-dir --only-binary=:all: -r /tmp/pins.txt \
        -e ".[measure,report,remote,onnx,notebooks]"

FROM base
COPY --from=build /opt/venv /opt/venv
COPY --from=build /opt/cuda-gains /opt/cuda-gains
# A container may run as any user (`docker run --user`), so that what it writes is that user's.
RUN useradd --create-home --uid 1000 measure \
    && install -d -o measure -m 1777 /opt/cuda-gains/results \
    && chmod 1777 /home/measure
# No search path: it would put the base's CUDA libraries before those of the wheels.
ENV PATH=/opt/venv/bin:$PATH HOME=/home/measure LD_LIBRARY_PATH=
WORKDIR /opt/cuda-gains
VOLUME /opt/cuda-gains/results
USER 1000
# On the loopback alone, with the token of $JUPYTER_TOKEN or one that it makes up and prints.
CMD ["jupyter", "lab", "--ip=127.0.0.1", "--port=8888", "--no-browser"]
