"""A llama.cpp server on loopback, in its own process: `python -m tests.llamacpp.serve MODEL`.

Writes its address when it is ready, and ends with its standard input, so that it never outlives who started it.
"""

from __future__ import annotations

import sys

import xllamacpp  # type: ignore[import-untyped]


def main(model: str) -> None:
    parameters = xllamacpp.CommonParams()
    parameters.model.path = model
    parameters.model_alias = {"tiny"}
    parameters.hostnames = ["127.0.0.1"]
    parameters.port = 0
    parameters.n_parallel = 2
    parameters.cpuparams.n_threads = 1  # more threads slow each other down
    parameters.use_jinja = True
    parameters.warmup = False
    server = xllamacpp.Server(parameters)
    sys.stdout.write(f"{server.listening_address}\n")
    sys.stdout.flush()
    sys.stdin.read()


if __name__ == "__main__":
    main(*sys.argv[1:])
