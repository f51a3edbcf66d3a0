// Package nccl has the tests of libnccl.so.2, which is written in C.
package nccl

import (
	"bufio"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"unicode"

	"github.com/mscclpp-go/mscclpp/collectives/collectivetest"
	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/bootstrap"
	"github.com/mscclpp-go/mscclpp/framework/device/cuda"
	"github.com/mscclpp-go/mscclpp/framework/device/cuda/emulated"
)

// built is an installation: lib has both libraries, and the plugins beside them.
var built struct {
	sync.Once
	dir string
	err error
}

func install(ctx context.Context) error {
	lib := filepath.Join(built.dir, "lib")
	for _, c := range []*exec.Cmd{
		exec.CommandContext(ctx, "../scripts/capi.sh", lib),
		exec.CommandContext(ctx, "../scripts/nccl.sh", lib),
		exec.CommandContext(ctx, "go", "build", "-o", lib+"/mscclpp/plugins/", "../transports/shm/cmd/mscclpp-transport-shm", "../transports/cudaipc/cmd/mscclpp-transport-cudaipc", "../transports/xgmi/cmd/mscclpp-transport-xgmi", "../transports/tcp/cmd/mscclpp-transport-tcp"),
	} {
		c.Env = append(os.Environ(), "VERSION=devel")
		if text, err := c.CombinedOutput(); err != nil {
			return fmt.Errorf("%v: %w\n%s", c.Args, err, text)
		}
	}
	return nil
}

// library returns the folder of the libraries, which the first test builds.
func library(t *testing.T) string {
	t.Helper()
	if _, err := exec.LookPath("cc"); err != nil {
		t.Skip("no C compiler")
	}
	if dir := os.Getenv("MSCCLPP_TEST_NCCL"); dir != "" { // libraries and plugins that were built before
		return dir
	}
	built.Do(func() {
		built.dir = scratch(t)
		built.err = install(t.Context())
	})
	if built.err != nil {
		t.Fatal(built.err)
	}
	return filepath.Join(built.dir, "lib")
}

// environ is that of the programs: nothing of the machine that runs the tests decides their outcome.
func environ(t *testing.T, more ...string) []string {
	t.Helper()
	images := keep(t, "images for the host", func() (string, error) { return collectivetest.BuildHostImages(t.Context()) })
	return append([]string{"HOME=" + t.TempDir(), "PATH=" + os.Getenv("PATH"), "MSCCLPP_DEVICE=host", "MSCCLPP_TRANSPORT__SHM__IMAGES=" + images}, more...)
}

// compile builds a program of testdata against the library.
func compile(t *testing.T, source string) string {
	t.Helper()
	return compileFor(t, source, library(t))
}

// compileFor is compile for a program that finds the library in a folder.
func compileFor(t *testing.T, source, dir string) string {
	t.Helper()
	return link(t, source, dir, "-lnccl")
}

// link is compileFor a library.
func link(t *testing.T, source, dir, with string) string {
	t.Helper()
	args := []string{"-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "testdata/" + source, "-L" + library(t), with, "-Wl,-rpath," + dir, "-lpthread", "-lm"}
	return keep(t, strings.Join(args, " "), func() (string, error) {
		dir, err := folder()
		if err != nil {
			return "", err
		}
		program := filepath.Join(dir, "program")
		if text, err := exec.Command("cc", append(args, "-o", program)...).CombinedOutput(); err != nil {
			return "", fmt.Errorf("cc %v: %w\n%s", args, err, text)
		}
		return program, nil
	})
}

func run(t *testing.T, c *exec.Cmd) string {
	t.Helper()
	out, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %v\n%s", c.Args, err, out)
	}
	return string(out)
}

func names(t *testing.T, list string) []string {
	t.Helper()
	text, err := os.ReadFile(list)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); line != "" && line[0] != '#' {
			all = append(all, line)
		}
	}
	return all
}

// Every name is there twice, the plain one weak, and nothing else is.
func TestExports(t *testing.T) { exports(t, "libnccl.so.2", "names.txt") }

// exports compares the names of a library with those of lists, which may leave out nccl in front.
func exports(t *testing.T, file string, lists ...string) {
	t.Helper()
	var want, got []string
	for _, list := range lists {
		for _, n := range names(t, list) {
			if unicode.IsUpper(rune(n[0])) {
				n = "nccl" + n
			}
			want = append(want, "W "+n, "T p"+n)
		}
	}
	for line := range strings.Lines(run(t, exec.Command("nm", "-D", "--defined-only", library(t)+"/"+file))) {
		f := strings.Fields(line)
		got = append(got, f[1]+" "+f[2])
	}
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("exported\n%v\nexpected\n%v", got, want)
	}
}

func TestHeader(t *testing.T) {
	for _, c := range [][]string{
		{"cc", "-std=c99", "-x", "c"}, {"c++", "-std=c++17", "-x", "c++"},
	} {
		run(t, exec.Command(c[0], append(c[1:], "-Wall", "-Wextra", "-Werror", "-pedantic", "-fsyntax-only", "nccl.h")...))
	}
}

// maker is a process that has made ids and lives until it is ended.
type maker struct {
	ids []bootstrap.UniqueID
	end func() error
}

func newMaker(t *testing.T, args ...string) maker {
	t.Helper()
	c := exec.Command(compile(t, "id.c"), args...)
	c.Stderr = os.Stderr
	in, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	m := maker{end: sync.OnceValue(func() error { return errors.Join(in.Close(), c.Wait()) })}
	t.Cleanup(func() { _ = m.end() })
	lines := bufio.NewScanner(out)
	for n := 1; len(m.ids) < n && lines.Scan(); {
		if len(args) > 0 {
			_, _ = fmt.Sscan(args[0], &n)
		}
		b, err := hex.DecodeString(lines.Text())
		if err != nil {
			t.Fatal(err)
		}
		id, err := bootstrap.UniqueIDFromBytes(b)
		if err != nil {
			t.Fatal(err)
		}
		m.ids = append(m.ids, id)
	}
	return m
}

// patience is how long ranks wait for each other, and for answers, which come at once unless the machine is very busy.
const patience = 5 * time.Minute

// joinAll has n ranks join with an id, and returns their errors.
func joinAll(ctx context.Context, id bootstrap.UniqueID, ranks []int, n int, timeout time.Duration) []error {
	all := make([]error, len(ranks))
	var each sync.WaitGroup
	for i, r := range ranks {
		each.Go(func() {
			b, err := bootstrap.Join(ctx, bootstrap.Config{Rank: r, Size: n, ID: id, Timeout: timeout})
			if err == nil {
				err = errors.Join(bootstrap.Barrier(ctx, b, 7), b.Close())
			}
			all[i] = err
		})
	}
	each.Wait()
	return all
}

// A process that is no rank makes ids, and ranks find rank 0 through it.
func TestMeeting(t *testing.T) {
	t.Parallel()
	m := newMaker(t, "3")
	var jobs sync.WaitGroup
	for _, id := range m.ids {
		jobs.Go(func() {
			if err := errors.Join(joinAll(t.Context(), id, []int{3, 2, 1, 0}, 4, patience)...); err != nil {
				t.Error(err)
			}
		})
	}
	jobs.Wait()
	for _, err := range joinAll(t.Context(), m.ids[0], []int{0, 1}, 2, patience) {
		if !errors.Is(err, framework.ErrInvalid) || !strings.Contains(err.Error(), "an id serves one job") {
			t.Errorf("an id that is used twice: %v", err)
		}
	}
	if err := m.end(); err != nil {
		t.Error(err)
	}
}

func TestMeetingMistakes(t *testing.T) {
	t.Parallel()
	m := newMaker(t, "4")
	expect := func(what string, err error, kind error, text string) {
		t.Helper()
		if !errors.Is(err, kind) || !strings.Contains(err.Error(), text) {
			t.Errorf("%s: %v: expected %v with %q", what, err, kind, text)
		}
	}
	for _, err := range joinAll(t.Context(), m.ids[0], []int{1}, 2, 10*time.Second) { // by then it waits for rank 0, on a busy machine, too
		expect("rank 0 does not come", err, context.DeadlineExceeded, "rank 0 has not come")
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	two := make(chan error, 2)
	for range cap(two) {
		go func() { two <- errors.Join(joinAll(ctx, m.ids[1], []int{0}, 2, patience)...) }()
	}
	expect("two ranks 0", <-two, framework.ErrInvalid, "another process has come as rank 0")
	cancel() // the other one waits for rank 1
	<-two
	// A stranger that is silent keeps nobody out.
	at := m.ids[2].Addresses()[0].String()
	silent, err := net.Dial("tcp", at)
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	if err := errors.Join(joinAll(t.Context(), m.ids[2], []int{0, 1}, 2, patience)...); err != nil {
		t.Error(err)
	}
	if err := m.end(); err != nil {
		t.Error(err)
	}
	for _, err := range joinAll(t.Context(), m.ids[3], []int{0, 1}, 2, patience) {
		expect("the maker has ended", err, framework.ErrPeer, "the process that made the unique id")
	}
}

// A child of the process that made the id holds none of its listeners: it neither keeps the port,
// nor takes connections that nobody answers.
func TestMeetingAfterFork(t *testing.T) {
	t.Parallel()
	m := newMaker(t, "1", "fork")
	if err := errors.Join(joinAll(t.Context(), m.ids[0], []int{0, 1, 2}, 3, patience)...); err != nil {
		t.Error(err)
	}
	if err := m.end(); err != nil {
		t.Error(err)
	}
}

// ranks runs a program as n ranks of a job that a maker's id names, and returns what each has printed.
func ranks(t *testing.T, source string, n int) []string {
	t.Helper()
	return ranksWith(t, source, n, environ(t))
}

// ranksWith is ranks in another environment. Some of them are killed.
func ranksWith(t *testing.T, source string, n int, own []string, killed ...int) []string {
	t.Helper()
	return ranksOf(t, compile(t, source), n, own, killed...)
}

func ranksOf(t *testing.T, program string, n int, own []string, killed ...int) []string {
	t.Helper()
	m := newMaker(t)
	out := make([]string, n)
	ctx, cancel := context.WithTimeout(t.Context(), limit())
	defer cancel()
	var all sync.WaitGroup
	for r := range n {
		all.Go(func() {
			c := exec.CommandContext(ctx, program)
			c.Env = append(slices.Clone(own), fmt.Sprintf("TEST_RANK=%d", r), fmt.Sprintf("TEST_SIZE=%d", n), "TEST_ID="+hex.EncodeToString(m.ids[0][:]))
			text, err := c.CombinedOutput()
			out[r] = string(text)
			var ended *exec.ExitError
			dead := errors.As(err, &ended) && ended.Sys().(syscall.WaitStatus).Signal() == syscall.SIGKILL
			if dead != slices.Contains(killed, r) || err != nil && !dead {
				t.Errorf("rank %d: %v\n%s", r, err, text)
			}
		})
	}
	all.Wait()
	return out
}

func TestCollectives(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 2, 3} {
		ranks(t, "collectives.c", n)
	}
}

func TestShrink(t *testing.T) {
	t.Parallel()
	ranksWith(t, "shrink.c", 5, environ(t), 0, 3)
}

func TestGroups(t *testing.T) {
	t.Parallel()
	ranks(t, "groups.c", 2)
}

func TestCommunicators(t *testing.T) {
	t.Parallel()
	ranks(t, "comms.c", 2)
}

func TestOperations(t *testing.T) {
	t.Parallel()
	ranks(t, "operations.c", 3)
}

func TestAlone(t *testing.T) {
	t.Parallel()
	alone(t, "alone.c")
}

// Values, waits and texts that no other program is about.
func TestLines(t *testing.T) {
	t.Parallel()
	ranks(t, "lines.c", 3)
}

// Graphs of other threads, and memory that is mapped anew at the same addresses.
func TestLinesOnGPUs(t *testing.T) {
	t.Parallel()
	ranksWith(t, "lines_device.c", 2, onGPUs(t))
}

func TestLife(t *testing.T) {
	t.Parallel()
	ranks(t, "life.c", 4)
}

// Calls that are queued when the program destroys the communicator, and their stream, are carried out.
func TestDevice(t *testing.T) {
	t.Parallel()
	ranksWith(t, "device.c", 2, onGPUs(t, "NCCL_CHECK_POINTERS=1"))
}

// Communicators of ids of their own lend each other memory for copies.
func TestLendingOnGPUs(t *testing.T) {
	t.Parallel()
	ranksWith(t, "lends.c", 2, onGPUs(t, "MSCCLPP_COMM__SCRATCH=24MiB", "MSCCLPP_COLLECTIVES__TABLE=[{collective: allreduce, min_ranks: 2, max_bytes: 1M, algorithm: oneshot_ll8}, {collective: allreduce, algorithm: copy_staged}]"))
}

// Calls of two communicators on two streams are in the order in which they are made, if the user wants that.
func TestLaunchOrder(t *testing.T) {
	t.Parallel()
	const of, config = "NCCL_LAUNCH_ORDER_IMPLICIT=", "TEST_CONFIG=1"
	for _, set := range [][]string{nil, {of + "0"}, {of + "1"}, {config}, {config, "TEST_VERSION=23007"}, {config, of + "0"}, {config, "TEST_VERSION=23007", of + "1"}} {
		ranksWith(t, "chained.c", 1, onGPUs(t, set...))
	}
}

func TestShrinkOnGPUs(t *testing.T) {
	t.Parallel()
	ranksWith(t, "shrink_device.c", 3, onGPUs(t), 0)
}

// Devices, streams and captures of two GPUs of one process.
func TestGPUs(t *testing.T) {
	t.Parallel()
	ranksWith(t, "gpus.c", 1, onGPUs(t))
}

// The user may have the runtime of Go use one processor: a rank that waits must not keep the other, of the same process, from it.
func TestGPUsOnOneProcessor(t *testing.T) {
	t.Parallel()
	ranksWith(t, "gpus.c", 1, onGPUs(t, "GOMAXPROCS=1"))
}

// onGPUs is the environment of programs on emulated GPUs, with kernels of f32.
func onGPUs(t *testing.T, more ...string) []string {
	t.Helper()
	return onGPUsWith(t, nil, more...)
}

// onGPUsWith is onGPUs with further kernels.
func onGPUsWith(t *testing.T, kernels []emulated.Source, more ...string) []string {
	t.Helper()
	driver := emulated.Build(t)
	images := emulatedImages(t, append(kernels, emulated.Source{Spec: "../collectives/image/kernels.json", Types: []string{"f32"}},
		emulated.Source{Spec: "../collectives/internal/scaling/kernels/kernels.json", Images: "../collectives/internal/scaling/image", Types: []string{"f32"}})...)
	return append([]string{
		"HOME=" + t.TempDir(), "PATH=" + os.Getenv("PATH"), cuda.EnvLibrary + "=" + driver, "LD_LIBRARY_PATH=" + filepath.Dir(driver),
		emulated.EnvImages + "=" + images, emulated.EnvMemory + "=1073741824",
	}, more...)
}

func TestArguments(t *testing.T) {
	t.Parallel()
	alone(t, "arguments.c")
}

// Communicators and memory are on the host if that is wanted, also where there are GPUs.
func TestHostBesideGPUs(t *testing.T) {
	t.Parallel()
	driver := emulated.Build(t)
	alone(t, "arguments.c", cuda.EnvLibrary+"="+driver, "LD_LIBRARY_PATH="+filepath.Dir(driver))
}

// Each layer of the configuration says so, the later one has the last word, and a mistake is an error of the communicator. On
// GPUs a communicator is on the one that is current, also where the configuration names another one.
func TestHostByConfiguration(t *testing.T) {
	t.Parallel()
	onGPU := onGPUs(t)
	write := func(name, text string) string {
		path := filepath.Join(t.TempDir(), name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	host := write("job.yaml", "device: host\n")
	users := write("mscclpp/config.toml", "device = \"host\"\n")
	for name, c := range map[string]struct {
		where     string
		variables []string
	}{
		"job file":                   {"host", []string{"MSCCLPP_CONFIG=" + host}},
		"user file":                  {"host", []string{"XDG_CONFIG_HOME=" + filepath.Dir(filepath.Dir(users))}},
		"variable":                   {"host", []string{"MSCCLPP_DEVICE=host"}},
		"variable before a file":     {"gpu", []string{"MSCCLPP_CONFIG=" + host, "MSCCLPP_DEVICE=auto"}},
		"file without it":            {"gpu", []string{"MSCCLPP_CONFIG=" + write("job.yaml", "log:\n  level: error\n")}},
		"another device in a file":   {"gpu", []string{"MSCCLPP_CONFIG=" + write("job.yaml", "device: cuda:1\n")}},
		"another device by variable": {"gpu", []string{"MSCCLPP_DEVICE=cuda:1"}},
		"mistake":                    {"mistake", []string{"MSCCLPP_CONFIG=" + write("job.yaml", "devcie: host\n")}},
		"file that is not there":     {"mistake", []string{"MSCCLPP_CONFIG=/nowhere/job.yaml"}},
	} {
		t.Run(name, func(t *testing.T) {
			program := compile(t, "residence.c")
			ctx, cancel := context.WithTimeout(t.Context(), limit())
			defer cancel()
			p := exec.CommandContext(ctx, program)
			p.Env = append(append(slices.Clone(onGPU), "TEST_RANK=0", "TEST_SIZE=1", "TEST_WHERE="+c.where), c.variables...)
			run(t, p)
		})
	}
}

// Limits of a process that the library cannot live with are an error of init, and not its end.
func TestLimits(t *testing.T) {
	t.Parallel()
	alone(t, "limits.c")
}

func TestManyOfAProcess(t *testing.T) {
	t.Parallel()
	alone(t, "many.c")
}

// alone runs a program that makes its own ids.
func alone(t *testing.T, source string, variables ...string) string {
	t.Helper()
	program, env := compile(t, source), environ(t, variables...) // which the first test waits for long
	ctx, cancel := context.WithTimeout(t.Context(), limit())
	defer cancel()
	c := exec.CommandContext(ctx, program)
	c.Env = env
	return run(t, c)
}
