package mscclpp_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/mscclpp-go/mscclpp"
	"github.com/mscclpp-go/mscclpp/collectives"
	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
	"github.com/mscclpp-go/mscclpp/internal/promise"
)

// overHosts are the settings of a rank that believes it has a host to itself.
func overHosts() []mscclpp.Option {
	return []mscclpp.Option{
		mscclpp.WithSetting("transports", "tcp"),
		mscclpp.WithSetting("plugins.embed", "tcp"),
		mscclpp.WithSetting("log.level", "none"),
		mscclpp.WithSetting("bootstrap.host_id", "host-"+os.Getenv("RANK")),
	}
}

// sums reduces twice, and once more unless the rank leaves after that.
func sums(ctx context.Context, leaves bool) error {
	job, err := mscclpp.Init(ctx, overHosts()...)
	if err != nil {
		return err
	}
	defer job.Close()
	x := make([]float32, 1000)
	p := unsafe.Pointer(&x[0])
	for range 2 {
		if err := job.AllReduce(p, p, len(x), kernel.Float32, kernel.Max, nil); err != nil {
			return err
		}
	}
	if leaves {
		return job.Close()
	}
	watch := promise.Begin()
	err = job.AllReduce(p, p, len(x), kernel.Float32, kernel.Max, nil)
	fmt.Printf("late %v, class %v, peer %d: %v\n", watch.Kept(5*time.Second) != nil, framework.Class(err), framework.PeerOf(err), err)
	if err == nil {
		return errors.New("a sum without one of the ranks")
	}
	return nil
}

// A rank that leaves its job in good order while others, on other hosts, wait for it is
// noticed by all of them at once; no rank waits for a deadline.
func TestLeavingAJobOverHosts(t *testing.T) {
	const culprit = 1
	modes := []string{"sums", "sums", "sums"}
	modes[culprit] = "leaves"
	printed, codes := ranks(t, modes...)
	for r, text := range printed {
		want := fmt.Sprintf("late false, class %v, peer %d: ", framework.ErrPeer, culprit)
		switch {
		case r == culprit:
			want = "rank 1 left\n"
		case !strings.Contains(text, "has left the job"):
			t.Errorf("rank %d: %q: expected that rank %d has left the job", r, text, culprit)
		}
		if codes[r] != 0 || !strings.Contains(text, want) {
			t.Errorf("rank %d: code %d, %q, expected %q", r, codes[r], text, want)
		}
	}
}

// closes leaves its job while another goroutine waits in a call for a rank that does not take part,
// on a communicator that was split off from one that was split off if split is set.
func closes(ctx context.Context, split bool) error {
	job, err := mscclpp.Init(ctx, overHosts()...)
	if err != nil {
		return err
	}
	defer job.Close()
	x := make([]float32, 1000)
	p := unsafe.Pointer(&x[0])
	c := job.Comm
	if split {
		sub, err := job.World.Split(ctx, 0, job.Rank())
		if err != nil {
			return err
		}
		if sub, err = sub.Split(ctx, 0, job.Rank()); err != nil {
			return err
		}
		if c, err = collectives.New(ctx, sub, collectives.Options{}); err != nil {
			return err
		}
	}
	reduce := func() error { return c.AllReduce(p, p, len(x), kernel.Float32, kernel.Max, nil) }
	if err := reduce(); err != nil && job.Rank() == 0 {
		return err
	}
	if job.Rank() != 0 { // rank 0 may have closed already, while this one's first call returned
		<-c.Communicator().Done()
		err := c.Communicator().Err()
		fmt.Printf("class %v, peer %d: %v\n", framework.Class(err), framework.PeerOf(err), err)
		return nil
	}
	called, closed := make(chan error, 1), make(chan error, 1)
	go func() { called <- reduce() }()
	late := time.After(patience)
	for !inCall() { // a Close that comes before the call is in order, and ends nothing on other ranks
		select {
		case <-late:
			fmt.Println("the call does not begin")
			os.Exit(1)
		default:
			runtime.Gosched()
		}
	}
	go func() { closed <- job.Close() }()
	for range 2 {
		select {
		case err := <-called:
			fmt.Printf("call: class %v\n", framework.Class(err))
		case err := <-closed:
			fmt.Printf("close: %v\n", err)
		case <-late:
			fmt.Println("the call, or Close, does not return")
			os.Exit(1)
		}
	}
	return nil
}

// inCall reports whether a goroutine is in an all-reduce, behind the lock that Close looks at: in the engine.
func inCall() bool {
	stacks := make([]byte, 1<<20)
	stacks = stacks[:runtime.Stack(stacks, true)]
	for one := range strings.SplitSeq(string(stacks), "\n\n") {
		if strings.Contains(one, "(*Comm).AllReduce") && strings.Contains(one, "collectives/internal/inter") {
			return true
		}
	}
	return false
}

// Close of a job returns, and so does the call that waits in another goroutine, on a communicator that was split off
// as well; the others learn which rank closed.
func TestClosingAJobWithinACall(t *testing.T) {
	for _, mode := range []string{"closes", "closes split"} {
		t.Run(mode, func(t *testing.T) { testClosing(t, mode) })
	}
}

func testClosing(t *testing.T, mode string) {
	printed, codes := ranks(t, mode, mode)
	for r, all := range [][]string{
		{"call: class " + framework.ErrClosed.Error() + "\n", "close: <nil>\n"},
		{fmt.Sprintf("class %v, peer 0: ", framework.ErrPeer), "closed"},
	} {
		for _, want := range all {
			if codes[r] != 0 || !strings.Contains(printed[r], want) {
				t.Errorf("rank %d: code %d, %q: expected %q", r, codes[r], printed[r], want)
			}
		}
	}
}
