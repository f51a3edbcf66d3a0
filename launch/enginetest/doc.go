// Package enginetest starts jobs by the real programs that start jobs elsewhere: Open
// MPI's mpirun, MPICH's mpiexec, Slurm's srun and sbatch, and ssh, played by a script
// that stays on this machine, or with an sshd on the loopback. Its tests skip what is
// not installed; scripts/slurm-test.sh provides a Slurm cluster.
package enginetest
