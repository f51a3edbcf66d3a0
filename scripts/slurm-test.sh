#!/bin/bash
# Runs a command inside a Slurm cluster that exists for it alone: slurmctld, munged
# and two slurmd on this machine, which play the hosts n1 and n2.
#
#   scripts/slurm-test.sh srun -N 2 hostname
#   scripts/slurm-test.sh            the tests of launch/enginetest that need Slurm
#
# Everything lives in a temporary folder and in namespaces of its own (processes,
# mounts, network): no port, file or process of the machine is touched, and the kernel
# ends what is left. It needs root and the Debian packages of `scripts/deps.sh engines`.
# Where it cannot run it says what is missing and ends with code 77.
set -euo pipefail

cannot() {
	echo "slurm-test: skipped: $*" >&2
	exit 77
}

namespaces=(unshare --mount --pid --net --uts --fork --kill-child --mount-proc)

if [ -z "${SLURM_TEST_INSIDE:-}" ]; then
	for program in slurmctld slurmd srun sbatch munged unshare ip; do
		command -v "$program" >/dev/null || cannot "$program is not installed: see scripts/deps.sh engines"
	done
	[ "$(id -u)" = 0 ] || cannot "needs root, because slurmd does"
	"${namespaces[@]}" true 2>/dev/null || cannot "no namespaces can be made here"
	self=$(realpath "$0")
	work=$(mktemp -d /tmp/slurm-test.XXXXXX)
	trap 'rm -rf "$work"' EXIT
	chmod 755 "$work" # munged accepts its folder like this only
	if [ $# = 0 ]; then
		cd "$(dirname "$self")/../launch/enginetest"
		"${GO:-go}" test -c -o "$work/engines.test" .
		set -- "$work/engines.test" -test.run Slurm -test.v -test.timeout 120s
	fi
	# No exec, for the sake of the trap. The first process of the namespace takes all
	# others with it.
	SLURM_TEST_INSIDE=$work timeout --foreground --kill-after=5 "${SLURM_TEST_BOUND:-180}" \
		"${namespaces[@]}" "$BASH" "$self" "$@" || exit
	exit 0
fi

work=$SLURM_TEST_INSIDE
unset SLURM_TEST_INSIDE
ip link set lo up
# Slurm does not resolve names to addresses of 127.0.0.0/8 where there are no others.
ip addr add 10.77.0.1/32 dev lo
ip addr add 10.77.0.2/32 dev lo
hostname n1
cp /etc/hosts "$work/hosts"
printf '10.77.0.1 n1\n10.77.0.2 n2\n' >>"$work/hosts"
mount --bind "$work/hosts" /etc/hosts
mkdir "$work/state" "$work/n1" "$work/n2"
head -c 1024 /dev/urandom >"$work/key"
chmod 400 "$work/key"

cat >"$work/slurm.conf" <<END
ClusterName=test
SlurmctldHost=n1
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$work/munge
CredType=cred/munge
SlurmctldPort=26817
SlurmctldPidFile=$work/slurmctld.pid
SlurmdPidFile=$work/slurmd-%n.pid
SlurmdSpoolDir=$work/%n
StateSaveLocation=$work/state
SlurmctldLogFile=$work/slurmctld.log
SlurmdLogFile=$work/slurmd-%n.log
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SwitchType=switch/none
MpiDefault=none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SchedulerType=sched/builtin
SchedulerParameters=batch_sched_delay=0
MailProg=/bin/true
ReturnToService=2
KillWait=2
NodeName=n1 NodeHostname=n1 NodeAddr=10.77.0.1 Port=26818 CPUs=8 State=UNKNOWN
NodeName=n2 NodeHostname=n1 NodeAddr=10.77.0.2 Port=26819 CPUs=8 State=UNKNOWN
PartitionName=all Nodes=n[1-2] Default=YES MaxTime=10 State=UP
END
export SLURM_CONF=$work/slurm.conf

# await WHAT COMMAND… waits until a command succeeds, and shows the logs if it does not.
await() {
	local what=$1 end=$((SECONDS + 20))
	shift
	until "$@" 2>/dev/null; do
		if [ $SECONDS -ge $end ]; then
			echo "slurm-test: $what not ready within 20 s:" >&2
			tail -n 15 "$work"/*.log >&2
			exit 1
		fi
		sleep 0.1
	done
}
ping() { timeout 2 scontrol ping | grep -q UP; }
idle() { [ "$(timeout 2 sinfo -h -o '%D %T')" = "2 idle" ]; }

# In the foreground, so that they are children of this shell and log to these files.
munged --foreground --force --socket "$work/munge" --key-file "$work/key" --log-file "$work/munge.log" \
	--pid-file "$work/munged.pid" --seed-file "$work/seed" --num-threads 2 >"$work/munged.log" 2>&1 &
await munged test -S "$work/munge"
slurmctld -D -i >/dev/null 2>&1 &
await slurmctld ping
slurmd -D -N n1 >/dev/null 2>&1 &
slurmd -D -N n2 >/dev/null 2>&1 &
await "the hosts" idle

code=0
"$@" </dev/null || code=$?
exit "$code"
