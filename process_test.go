package mscclpp_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/mscclpp-go/mscclpp"
	"github.com/mscclpp-go/mscclpp/framework/bootstrap"
)

// A process may be all ranks of a job: each calls Init with variables of its own, and
// their sums are those of processes. A rank that says nothing of its place is another job.
func TestAProcessThatIsAllRanks(t *testing.T) {
	const ranks, count = 3, 1000
	for name, value := range map[string]string{ // mpirun's own statements about the process are not about its ranks
		"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "1", "OMPI_COMM_WORLD_LOCAL_RANK": "0", "OMPI_COMM_WORLD_LOCAL_SIZE": "1",
		"SLURM_STEP_ID": "0", "SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "1",
	} {
		t.Setenv(name, value)
	}
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	id, err := bootstrap.NewUniqueID(netip.MustParseAddrPort(listener.Addr().String()))
	if err != nil {
		t.Fatal(err)
	}
	// Rank 0 takes the listener, as it would a launcher's, so that nobody else can take
	// the port in between.
	left := descriptorOf(t, listener)
	ctx := bounded(t)
	rank := func(r int) error {
		variables := map[string]string{"RANK": strconv.Itoa(r), "WORLD_SIZE": strconv.Itoa(ranks), "LOCAL_RANK": "0", bootstrap.EnvUniqueID: id.String()}
		if r == 0 {
			variables[bootstrap.EnvListenFD] = strconv.Itoa(left)
		}
		job, err := mscclpp.Init(ctx, append(overHosts(), mscclpp.WithVariables(variables), // tcp needs no kernels
			mscclpp.WithSetting("bootstrap.host_id", "host-"+strconv.Itoa(r)))...)
		if err != nil {
			return err
		}
		return errors.Join(sumOfRanks(ctx, job, r, ranks, count), job.Close())
	}
	results := make(chan error, ranks)
	for r := range ranks {
		go func() { results <- rank(r) }()
	}
	alone := open(t)
	if alone.Size() != 1 {
		t.Errorf("a job beside them has %d ranks", alone.Size())
	}
	for range ranks {
		if err := <-results; err != nil {
			t.Error(err)
		}
	}
}

// descriptorOf gives up a listener, and returns the number of a descriptor of it that its user
// closes.
func descriptorOf(t *testing.T, listener net.Listener) int {
	t.Helper()
	f, err := listener.(*net.TCPListener).File()
	if err != nil {
		t.Fatal(err)
	}
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err := errors.Join(err, f.Close(), listener.Close()); err != nil {
		t.Fatal(err)
	}
	return fd
}

func sumOfRanks(ctx context.Context, job *mscclpp.Job, rank, ranks, count int) error {
	if job.Rank() != rank || job.Size() != ranks {
		return fmt.Errorf("rank %d of %d: expected %d of %d", job.Rank(), job.Size(), rank, ranks)
	}
	in, out := make([]float32, count), make([]float32, count)
	for i := range in {
		in[i] = float32(rank + i)
	}
	if err := job.AllReduce(unsafe.Pointer(&in[0]), unsafe.Pointer(&out[0]), count, mscclpp.Float32, mscclpp.Sum, nil); err != nil {
		return err
	}
	for i, got := range out {
		if want := float32(ranks*i + ranks*(ranks-1)/2); got != want {
			return fmt.Errorf("element %d: %v, expected %v", i, got, want)
		}
	}
	return job.World.Barrier(ctx)
}
