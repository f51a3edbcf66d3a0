package mscclpp_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/mscclpp-go/mscclpp"
	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/bootstrap"
	"github.com/mscclpp-go/mscclpp/framework/comm"
	"github.com/mscclpp-go/mscclpp/internal/leaktest"
	"github.com/mscclpp-go/mscclpp/internal/promise"
)

// childMode makes the test binary a rank of a job: its value says what the rank
// does.
const childMode = "MSCCLPP_ROOT_TEST"

func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == slowName {
		serveSlowly()
	}
	if mode := os.Getenv(childMode); mode != "" {
		os.Unsetenv(childMode) // it is not an option of ours
		os.Exit(child(mode))
	}
	// Nothing of the machine that runs the tests decides their outcome.
	for _, e := range os.Environ() {
		name, _, _ := strings.Cut(e, "=")
		if strings.HasPrefix(name, "MSCCLPP_") || strings.HasPrefix(name, "SLURM_") || strings.HasPrefix(name, "OMPI_") {
			os.Unsetenv(name)
		}
	}
	for _, name := range []string{"RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"} {
		os.Unsetenv(name)
	}
	leaktest.Main(m)
}

// embedded are the settings of a job that needs no plugin.
var embedded = []mscclpp.Option{
	mscclpp.WithSetting("transports", "shm"),
	mscclpp.WithSetting("plugins.embed", "shm"),
	mscclpp.WithSetting("log.level", "none"),
}

func with(options ...mscclpp.Option) []mscclpp.Option {
	return append(append([]mscclpp.Option{}, embedded...), options...)
}

// child is one rank of a job of several processes.
func child(mode string) int {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if mode == "sums" || mode == "leaves" {
		if err := sums(ctx, mode == "leaves"); err != nil {
			fmt.Println(err)
			return 1
		}
		fmt.Printf("rank %s left\n", os.Getenv("RANK"))
		return 0
	}
	if mode == "closes" || mode == "closes split" {
		if err := closes(ctx, mode == "closes split"); err != nil {
			fmt.Println(err)
			return 1
		}
		return 0
	}
	watch := promise.Begin()
	options := with()
	if mode == "broken" {
		options = with(mscclpp.WithSetting("transport.shm.drain_spin", "much"))
	}
	if list, ok := strings.CutPrefix(mode, "over "); ok {
		options = with(mscclpp.WithSetting("transports", list), mscclpp.WithSetting("plugins.embed", list))
	}
	job, err := mscclpp.Init(ctx, options...)
	if err != nil {
		fmt.Printf("late %v, peer %d: %v\n", watch.Kept(10*time.Second) != nil, framework.PeerOf(err), err)
		return 3
	}
	defer job.Close()
	if err := pass(ctx, job.World); err != nil {
		fmt.Println(err)
		return 1
	}
	switch mode {
	case "nested":
		again(ctx, options)
		if err := job.World.Barrier(ctx); err != nil { // the first job is none the worse
			fmt.Println(err)
			return 1
		}
	case "again":
		if err := job.Close(); err != nil {
			fmt.Println(err)
			return 1
		}
		again(ctx, options)
	}
	fmt.Printf("rank %d of %d is done\n", job.Rank(), job.Size())
	return 0
}

// again joins the launcher's job once more, and prints what comes of it.
func again(ctx context.Context, options []mscclpp.Option) {
	watch := promise.Begin()
	job, err := mscclpp.Init(ctx, options...)
	if err == nil {
		err = errors.Join(errors.New("it worked"), job.Close())
	}
	fmt.Printf("again, late %v, class %v: %v\n", watch.Kept(10*time.Second) != nil, framework.Class(err), err)
}

// pass sends a signal around a ring of port channels.
func pass(ctx context.Context, c *comm.Communicator) error {
	m, err := c.Alloc(4096)
	if err != nil {
		return err
	}
	if c.Size() > 1 {
		ch, err := c.PortChannel(ctx, 1-c.Rank(), m, m)
		if err != nil {
			return err
		}
		if err := errors.Join(ch.PutWithSignal(64, 0, 64), ch.Wait(ctx)); err != nil {
			return err
		}
	}
	return c.Barrier(ctx)
}

// ranks runs this binary as all ranks of a job and returns what they printed.
func ranks(t *testing.T, modes ...string) (printed []string, codes []int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	l, id, err := bootstrap.Listen(ctx, "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	file, err := l.File()
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close() // if rank 0 does not start
	l.Close()
	outs := make([]bytes.Buffer, len(modes))
	var all []*exec.Cmd
	for r, mode := range modes {
		c := exec.CommandContext(ctx, os.Args[0])
		c.Env = append(os.Environ(), childMode+"="+mode,
			fmt.Sprint("RANK=", r), fmt.Sprint("WORLD_SIZE=", len(modes)), bootstrap.EnvUniqueID+"="+id.String())
		if r == 0 {
			c.ExtraFiles = []*os.File{file}
			c.Env = append(c.Env, bootstrap.EnvListenFD+"=3")
		}
		c.Stdout, c.Stderr = &outs[r], &outs[r]
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		if r == 0 {
			file.Close() // rank 0 alone listens
		}
		all = append(all, c)
	}
	for r, c := range all {
		_ = c.Wait() // the code says it
		printed = append(printed, outs[r].String())
		codes = append(codes, c.ProcessState.ExitCode())
	}
	return printed, codes
}
