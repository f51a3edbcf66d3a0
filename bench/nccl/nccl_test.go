package nccl

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/bench"
	"github.com/mscclpp-go/mscclpp/bench/benchtest"
	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
)

// library builds the stand-in for NCCL and opens it. log returns what it was called
// with since the last look.
func library(t *testing.T, flags ...string) (l *Library, log func() string) {
	t.Helper()
	dir := t.TempDir()
	path, file := filepath.Join(dir, "libnccl.so.2"), filepath.Join(dir, "log")
	args := append([]string{"-shared", "-fPIC", "-o", path, "testdata/fake.c"}, flags...)
	if out, err := exec.Command("cc", args...).CombinedOutput(); err != nil {
		t.Skipf("needs a C compiler: %v\n%s", err, out)
	}
	t.Setenv(EnvLibrary, path)
	t.Setenv("FAKE_NCCL_LOG", file)
	l, err := Open()
	if err != nil {
		t.Fatal(err)
	}
	return l, func() string {
		text, _ := os.ReadFile(file)
		os.Remove(file)
		return strings.TrimSpace(string(text))
	}
}

// anywhere is a device whose context every thread has.
type anywhere struct{ bound int }

func (d *anywhere) Bound(f func() error) error { d.bound++; return f() }

// joined returns rank 1 of 3.
func joined(t *testing.T, flags ...string) (p *Peer, log func() string) {
	t.Helper()
	l, log := library(t, flags...)
	benchtest.New(3).Together(t, func(m *benchtest.Member) error {
		q, err := Join(context.Background(), l, m, &anywhere{}, 55)
		if m.Rank() == 1 {
			p = q
		} else if err == nil {
			err = q.Close()
		}
		return err
	})
	if p == nil {
		t.FailNow()
	}
	log()
	return p, log
}

func TestNoLibrary(t *testing.T) {
	t.Setenv(EnvLibrary, "/nonexistent/libnccl.so.2")
	if _, err := Open(); !errors.Is(err, framework.ErrUnavailable) || !strings.Contains(err.Error(), "/nonexistent") || !strings.Contains(err.Error(), EnvLibrary) {
		t.Errorf("%v", err)
	}
	t.Setenv(EnvLibrary, "libc.so.6")
	if _, err := Open(); !errors.Is(err, framework.ErrUnavailable) || !strings.Contains(err.Error(), "it has no nccl") {
		t.Errorf("another library: %v", err)
	}
}

func TestRanksJoinAndLeave(t *testing.T) {
	l, log := library(t)
	if v := l.Version(); v != "2.28.3" {
		t.Errorf("version %s", v)
	}
	benchtest.New(2).Together(t, func(m *benchtest.Member) error {
		p, err := Join(context.Background(), l, m, &anywhere{}, 0)
		if err != nil {
			return err
		}
		if p.Name() != "nccl 2.28.3" {
			t.Errorf("name %s", p.Name())
		}
		return p.Close()
	})
	got := log()
	for _, want := range []string{"GetUniqueId", "CommInitRank 0 of 2, uu", "CommInitRank 1 of 2, uu", "CommDestroy 100", "CommDestroy 101"} {
		if strings.Count(got, want) != 1 {
			t.Errorf("not one %q in\n%s", want, got)
		}
	}
}

func TestJoinThatFails(t *testing.T) {
	l, _ := library(t)
	t.Setenv("FAKE_NCCL_REFUSE", "CommInitRank")
	_, err := Join(context.Background(), l, benchtest.New(1).Member(0), &anywhere{}, 0)
	if err == nil || !strings.Contains(err.Error(), "join 1 ranks: invalid usage: the last words") {
		t.Errorf("%v", err)
	}
}

// call is of f16 elements between two addresses that are never read.
func call(c bench.Collective) *bench.Call {
	in, out := uintptr(4096), uintptr(8192)
	return &bench.Call{Collective: c, Type: kernel.Float16, Op: kernel.Max, Count: 10, Root: 2,
		In: *(*unsafe.Pointer)(unsafe.Pointer(&in)), Out: *(*unsafe.Pointer)(unsafe.Pointer(&out))}
}

func TestCalls(t *testing.T) {
	p, log := joined(t)
	for c, want := range map[bench.Collective]string{
		bench.AllReduce:     "AllReduce 4096 8192 10 6 2 on 55",
		bench.AllGather:     "AllGather 4096 8192 10 6",
		bench.ReduceScatter: "ReduceScatter 4096 8192 10 6 2",
		bench.Broadcast:     "Broadcast 4096 8192 10 6 root 2",
		bench.Reduce:        "Reduce 4096 8192 10 6 2 root 2",
		bench.AllToAll:      "AlltoAll 4096 8192 10 6",
		// Rank 1 of 3 sends to 2 and receives from 0.
		bench.SendRecv: "GroupStart \nRecv 8192 10 6 from 0\nSend 4096 10 6 to 2\nGroupEnd",
		bench.Gather:   "GroupStart \nSend 4096 10 6 to 2\nGroupEnd",
		bench.Scatter:  "GroupStart \nRecv 8192 10 6 from 2\nGroupEnd",
	} {
		if err := p.Do(call(c), 1); err != nil {
			t.Errorf("%s: %v", c, err)
		}
		if got := log(); got != want {
			t.Errorf("%s:\n%s\nwant\n%s", c, got, want)
		}
	}
}

// A number of calls is made in one go, until one is refused.
func TestRepeatedCalls(t *testing.T) {
	p, log := joined(t)
	if err := p.Do(call(bench.Broadcast), 3); err != nil {
		t.Fatal(err)
	}
	one := "Broadcast 4096 8192 10 6 root 2"
	if got := log(); got != one+"\n"+one+"\n"+one {
		t.Errorf("%s", got)
	}
	t.Setenv("FAKE_NCCL_REFUSE", "Broadcast")
	if err := p.Do(call(bench.Broadcast), 3); err == nil {
		t.Error("a call that was refused is no error")
	}
	if got := log(); strings.Count(got, "Broadcast") > 1 {
		t.Errorf("calls after one that was refused: %s", got)
	}
}

// Collectives that older versions lack are made of messages, a block for each rank.
func TestCallsOfOldVersions(t *testing.T) {
	p, log := joined(t, "-DOLD")
	if err := p.Do(call(bench.AllToAll), 1); err != nil {
		t.Fatal(err)
	}
	want := "GroupStart \nSend 4096 10 6 to 0\nRecv 8192 10 6 from 0\nSend 4116 10 6 to 1\nRecv 8212 10 6 from 1\nSend 4136 10 6 to 2\nRecv 8232 10 6 from 2\nGroupEnd"
	if got := log(); got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
	if err := p.Prepare(bench.Heap(64)); !errors.Is(err, framework.ErrUnsupported) {
		t.Errorf("windows: %v", err)
	}
}

func TestWindows(t *testing.T) {
	p, log := joined(t)
	if err := p.Prepare(bench.Heap(64), bench.Heap(128)); err != nil {
		t.Fatal(err)
	}
	if got := log(); got != "WindowRegister 64 1\nWindowRegister 128 1" {
		t.Errorf("%s", got)
	}
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	if got := log(); strings.Count(got, "WindowDeregister") != 2 || !strings.HasSuffix(got, "CommDestroy 101") {
		t.Errorf("%s", got)
	}
}

// A scaled sum has a number for each type and factor, made once and freed at the end.
func TestScaledSums(t *testing.T) {
	p, log := joined(t)
	c := call(bench.AllReduce)
	c.Op, c.Type, c.Scale = kernel.PreMulSum, kernel.Float32, 0.5
	for range 2 {
		if err := p.Do(c, 1); err != nil {
			t.Fatal(err)
		}
	}
	if got := log(); got != "PreMulSum 7 1 0.5\nAllReduce 4096 8192 10 7 77 on 55\nAllReduce 4096 8192 10 7 77 on 55" {
		t.Errorf("%s", got)
	}
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	if got := log(); got != "RedOpDestroy 77\nCommDestroy 101" {
		t.Errorf("%s", got)
	}
}

func TestUnsupportedByNCCL(t *testing.T) {
	p, log := joined(t)
	inPlace := call(bench.AllToAll)
	inPlace.InPlace = true
	half := call(bench.AllReduce)
	half.Op, half.Scale = kernel.PreMulSum, 0.5 // its factor would be f16
	odd := call(bench.AllReduce)
	odd.Type = kernel.Float8E4M3B15
	for name, c := range map[string]*bench.Call{"all-to-all-v": call(bench.AllToAllV), "in place": inPlace, "scaled f16": half, "type": odd} {
		if err := p.Do(c, 1); !errors.Is(err, framework.ErrUnsupported) {
			t.Errorf("%s: %v", name, err)
		}
		if p.Supports(c) {
			t.Errorf("%s is supported", name)
		}
	}
	if got := log(); got != "" {
		t.Errorf("calls: %s", got)
	}
}

func TestCallThatFails(t *testing.T) {
	p, _ := joined(t)
	t.Setenv("FAKE_NCCL_REFUSE", "AllReduce")
	if err := p.Do(call(bench.AllReduce), 3); err == nil || !strings.Contains(err.Error(), "nccl: allreduce: invalid usage: the last words") {
		t.Errorf("%v", err)
	}
	t.Setenv("FAKE_NCCL_REFUSE", "Send")
	if err := p.Do(call(bench.SendRecv), 1); err == nil {
		t.Error("a message that was refused is no error")
	}
}
