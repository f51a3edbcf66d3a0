#!/bin/sh
# Compares our collectives with those of the installed MPI (mpicc, mpirun) and
# writes machine.json, raw output and a summary to docs/results/mpi. Arguments go to
# the program that does it: see `go run ./bench/cmd/compare-mpi -h`. Run `make build`
# first.
set -eu
cd "$(dirname "$0")/.."
mkdir -p bin
mpicc -O2 -std=c11 -D_GNU_SOURCE -Wall -Wextra -Werror -o bin/mpi-peer bench/mpi/peer.c
go build -o bin/example-allreduce ./examples/allreduce
go build -o bin/compare-mpi ./bench/cmd/compare-mpi
exec bin/compare-mpi -peer bin/mpi-peer -first bin/example-allreduce "$@"
