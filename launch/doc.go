// Package launch starts the ranks of a job on this host, watches them, and leaves
// nothing behind.
//
// A rank is a process in a process group of its own. Three mechanisms end processes
// that would otherwise outlive the job, each for the cases that the ones before do not
// cover:
//
//   - When the last rank has ended, the launcher kills its group and all others. It
//     also kills processes that left their group, which it finds because they became
//     its children.
//   - When the launcher is killed, the kernel kills the ranks with it (Pdeathsig).
//   - A supervisor, a second small process, holds the end of a pipe. When the launcher
//     dies without a goodbye, the supervisor kills the groups and every other process
//     with the job's mark in its environment.
//
// Ranks write to the launcher's own standard output. Only if tags, time stamps or
// copies are wanted does their output go through pipes.
//
// The package also recognizes other engines (Slurm, Open MPI, torchrun, Kubernetes…) by
// the variables that they set: see Detect. Under them mscclpp-run takes the place that
// the engine gave it; it is not a cluster manager.
package launch
