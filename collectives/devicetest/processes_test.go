package devicetest

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mscclpp-go/mscclpp/collectives"
	"github.com/mscclpp-go/mscclpp/framework/bootstrap"
	"github.com/mscclpp-go/mscclpp/internal/promise"
	"github.com/mscclpp-go/mscclpp/internal/ranktest"
)

// childMode makes the test binary a rank of a job of processes: its value is the
// algorithm whose kernels wait.
const childMode = "MSCCLPP_DEVICE_TEST"

// childExchanges is its value for ranks that do what ranks of one process did in
// TestDirectByCopyEngines.
const childExchanges = "exchanges"

// childHosts names the host of each rank by a letter.
const childHosts = "MSCCLPP_DEVICE_TEST_HOSTS"

// rankProgram names the variable with the program to start ranks with, instead of this one:
// gpu-test.sh has each run in a tool.
const rankProgram = "RANK_PROGRAM"

// child is such a rank. With an algorithm it makes one call together with the others;
// then all but rank 1 make another, which that one never joins.
func child(algorithm string) int {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	r, f := &rank{}, func(ctx context.Context, r *rank) error { return wait(ctx, r, algorithm) }
	switch algorithm {
	case childExchanges:
		r.over, f = overCopies, exchanges
	case childDigests:
		f = digests
	case childRoundings:
		f = roundings
	}
	if err := alone(ctx, r, f); err != nil {
		fmt.Println("failed:", err)
		return 1
	}
	return 0
}

// alone makes this process a rank, which runs the given test.
func alone(ctx context.Context, r *rank, f func(ctx context.Context, r *rank) error) (err error) {
	gpus, err := machine()
	if err != nil {
		return err
	}
	config, err := bootstrap.FromEnv(os.Getenv)
	if err != nil {
		return err
	}
	boot, err := bootstrap.Join(ctx, config)
	if err != nil {
		return err
	}
	r.boot = boot
	defer func() { err = errors.Join(err, r.close(), boot.Close()) }()
	if at := os.Getenv(childHosts); at != "" {
		r.host = at[boot.Rank():][:1]
	}
	o := collectives.Options{Scratch: 24 << 20, CopyScratch: 2 << 20, Sharing: sharing(boot.Size(), len(gpus))}
	if err := r.open(ctx, gpus, boot.Rank(), o); err != nil {
		return err
	}
	return f(ctx, r)
}

// wait is what it does then.
func wait(ctx context.Context, r *rank, algorithm string) error {
	m, err := r.memory(ctx, 1<<20)
	if err != nil {
		return err
	}
	if err := errors.Join(sums(r, m.Addr(), 1000, algorithm), r.settle(ctx), r.world.Barrier(ctx)); err != nil {
		return err
	}
	if r.Rank() == 1 {
		fmt.Println("ready")
		_, err := io.Copy(io.Discard, os.Stdin) // until it is killed
		return err
	}
	if err := sums(r, m.Addr(), 1000, algorithm); err != nil {
		return err
	}
	fmt.Println("ready")
	if err := r.world.Settle(ctx, r.stream); err != nil {
		return err
	}
	fmt.Println("left:", r.Check())
	return nil
}

// A process that is killed while kernels of the others wait for it: within two
// seconds they have left, with an error that names it, and the processes end in order.
func TestProcessIsKilled(t *testing.T) {
	killed(t, "", "oneshot_ll8", "oneshot_lamport", "zerocopy", "copy")
}

// So it is when it was on another host, and streams wait for what the host would have got
// from it.
func TestProcessOfAnotherHostIsKilled(t *testing.T) {
	killed(t, "aba", "ports", "hierarchical_small", "hierarchical_large")
	killed(t, "aab", "hierarchical_large")
}

// killed is a job of three processes on hosts, of which rank 1 is killed.
func killed(t *testing.T, hosts string, algorithms ...string) {
	t.Helper()
	const n = 3
	if gpus := needsGPU(t); len(gpus) < n {
		t.Skipf("needs %d GPUs, there are %d", n, len(gpus))
	}
	for _, algorithm := range algorithms {
		t.Run(strings.TrimSpace(hosts+" "+algorithm), func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			all, lines := processes(ctx, t, n, algorithm, hosts)
			for r, s := range lines {
				if !s.Scan() || s.Text() != "ready" {
					t.Errorf("rank %d: %q, expected ready", r, s.Text())
				}
			}
			watch := promise.Begin()
			if err := all[1].Process.Kill(); err != nil {
				t.Error(err)
			}
			var survivors sync.WaitGroup
			for _, r := range []int{0, 2} {
				survivors.Go(func() {
					lines[r].Scan()
					if err := watch.Kept(2 * time.Second); err != nil {
						t.Errorf("rank %d: its kernel left %v", r, err)
					}
					if text := lines[r].Text(); !strings.HasPrefix(text, "left: ") || !strings.Contains(text, "rank 1") {
						t.Errorf("rank %d: %q, expected an error that names rank 1", r, text)
					}
					for lines[r].Scan() {
						t.Errorf("rank %d: %s", r, lines[r].Text())
					}
				})
			}
			survivors.Wait()
			for r, c := range all {
				if err := c.Wait(); err != nil && r != 1 {
					t.Errorf("rank %d: %v", r, err)
				}
			}
		})
	}
}

// processes starts the ranks of a job, which are to end with ctx.
func processes(ctx context.Context, t *testing.T, n int, mode, hosts string, env ...string) ([]*exec.Cmd, []*bufio.Scanner) {
	t.Helper()
	program := []string{cmp.Or(os.Getenv(rankProgram), os.Args[0])}
	return ranktest.Start(ctx, t, n, program, append(env, childMode+"="+mode, childHosts+"="+hosts)...)
}
