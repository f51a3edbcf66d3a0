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

	"github.com/mscclpp-go/mscclpp"
	"github.com/mscclpp-go/mscclpp/framework/bootstrap"
)

// A process may be all ranks of a job: each calls Init with variables of its own, and
// their sums are those of processes. A rank that says nothing of its place is another job.
func TestAProcessThatIsAllRanks(t *testing.T) {
	const ranks, count = 3, 1000
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	free := netip.MustParseAddrPort(listener.Addr().String())
	id, err := bootstrap.NewUniqueID(free)
	if err := errors.Join(err, listener.Close()); err != nil { // rank 0 listens there itself
		t.Fatal(err)
	}
	ctx := bounded(t)
	rank := func(r int) error {
		job, err := mscclpp.Init(ctx, append(overHosts(), mscclpp.WithVariables(map[string]string{ // tcp needs no kernels
			"RANK": strconv.Itoa(r), "WORLD_SIZE": strconv.Itoa(ranks), "LOCAL_RANK": "0", "MSCCLPP_UNIQUE_ID": id.String(),
		}), mscclpp.WithSetting("bootstrap.host_id", "host-"+strconv.Itoa(r)))...)
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
