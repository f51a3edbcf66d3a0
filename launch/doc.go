// Package launch starts the ranks of a job on this host, watches them, and leaves
// nothing behind.
//
// A rank is a process in a process group of its own. Three nets catch what would
// otherwise outlive the job, each for what the ones before cannot see:
//
//   - When the last rank has ended, its group and all others are killed, and so are
//     processes that left their group, because they became children of the launcher.
//   - When the launcher is killed, the kernel kills the ranks with it (Pdeathsig).
//   - A supervisor, a second small process, holds the end of a pipe. When the
//     launcher dies without a farewell, it kills the groups and whatever else
//     carries the job's mark in its environment.
//
// Ranks write to the launcher's own standard output unless somebody wants tags,
// time stamps or copies; then, and only then, their output goes through pipes.
//
// The package also knows other engines (Slurm, Open MPI, torchrun, Kubernetes…)
// by the variables that they set: see Detect. Under them mscclpp-run takes its place
// and is launched; it does not try to be a cluster manager.
package launch
