package ranktest

import (
	"bufio"
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

	"github.com/mscclpp-go/mscclpp/framework/bootstrap"
	"github.com/mscclpp-go/mscclpp/framework/comm"
	"github.com/mscclpp-go/mscclpp/framework/device/cuda"
	"github.com/mscclpp-go/mscclpp/framework/device/cuda/emulated"
	"github.com/mscclpp-go/mscclpp/internal/promise"
)

// Lines of a rank's process begin with these words; others are of the test binary.
const (
	ready = "rank is ready"
	left  = "rank left: "
)

// noImages has processes build no kernels for the host: they are ranks on GPUs.
const noImages = "MSCCLPP_TEST_WITHOUT_HOST_KERNELS"

// victim is the rank that is killed.
const victim = 1

// IsRank reports whether this process was started by Killed, which passed the mark.
func IsRank(mark string) (string, bool) { return os.LookupEnv(mark) }

// Wait makes this process a rank with an emulated GPU. All ranks set up; then all but one begin what never ends without that one, and settle.
func Wait(setUp func(ctx context.Context, c *comm.Communicator, dev *cuda.Device) (begin, settle func() error, err error)) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	config, err := bootstrap.FromEnv(os.Getenv)
	if err != nil {
		return err
	}
	boot, err := bootstrap.Join(ctx, config)
	if err != nil {
		return err
	}
	gpus, err := listed(boot.Size())
	if err != nil {
		return err
	}
	err = onGPU(ctx, boot, boot.Rank(), "", false, gpus, func(ctx context.Context, c *comm.Communicator, dev *cuda.Device) error {
		begin, settle, err := setUp(ctx, c, dev)
		if err == nil {
			err = c.Barrier(ctx)
		}
		if err != nil {
			return err
		}
		if c.Rank() == victim {
			fmt.Println(ready)
			_, err := io.Copy(io.Discard, os.Stdin) // until it is killed
			return err
		}
		if err := begin(); err != nil {
			return err
		}
		fmt.Println(ready)
		fmt.Println(left + fmt.Sprint(errors.Join(settle(), c.Check())))
		return nil
	})
	return errors.Join(err, boot.Close())
}

// Killed starts n processes of the test that calls it, which call Wait where IsRank says so, and kills one of them while the others wait for it: within two
// seconds they have left, with an error that names it.
func Killed(t *testing.T, n int, mark, what string) {
	t.Helper()
	t.Setenv(cuda.EnvLibrary, emulated.Build(t))
	t.Setenv(emulated.EnvMemory, "268435456")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	name, _, _ := strings.Cut(t.Name(), "/")
	all, lines := Start(ctx, t, n, []string{os.Args[0], "-test.run", "^" + name + "$"}, mark+"="+what, noImages+"=1")
	for r, s := range lines {
		if text := next(s, ready); text == "" {
			t.Errorf("rank %d ended before it was ready", r)
		}
	}
	watch := promise.Begin()
	if err := all[victim].Process.Kill(); err != nil {
		t.Error(err)
	}
	var survivors sync.WaitGroup
	for r := range all {
		if r == victim {
			continue
		}
		survivors.Go(func() {
			text := next(lines[r], left)
			if err := watch.Kept(2 * time.Second); err != nil {
				t.Errorf("rank %d: its kernel left %v", r, err)
			}
			if !strings.Contains(text, fmt.Sprint("rank ", victim)) {
				t.Errorf("rank %d: %q, expected an error that names rank %d", r, text, victim)
			}
			next(lines[r], "\n") // to the end
		})
	}
	survivors.Wait()
	for r, c := range all {
		if err := c.Wait(); err != nil && r != victim {
			t.Errorf("rank %d: %v", r, err)
		}
	}
}

// next is the next line that begins so; "": there is none.
func next(s *bufio.Scanner, begin string) string {
	for s.Scan() {
		if strings.HasPrefix(s.Text(), begin) {
			return s.Text()
		}
	}
	return ""
}

// Start starts a program n times, with its arguments, as the ranks of a job, which end with ctx. It returns them, and the lines of
// each. Their standard input is open until Wait.
func Start(ctx context.Context, t *testing.T, n int, program []string, env ...string) (all []*exec.Cmd, lines []*bufio.Scanner) {
	t.Helper()
	l, id, err := bootstrap.Listen(ctx, "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	file, err := l.File()
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	l.Close()
	for r := range n {
		c := exec.CommandContext(ctx, program[0], program[1:]...)
		c.Env = append(append(os.Environ(), env...), fmt.Sprint("RANK=", r), fmt.Sprint("WORLD_SIZE=", n), bootstrap.EnvUniqueID+"="+id.String())
		if r == 0 {
			c.ExtraFiles, c.Env = []*os.File{file}, append(c.Env, bootstrap.EnvListenFD+"=3")
		}
		out, err := c.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		in, err := c.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = in.Close() })
		c.Stderr = os.Stderr
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		all, lines = append(all, c), append(lines, bufio.NewScanner(out))
	}
	return all, lines
}
