package shm_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/device"
	"github.com/mscclpp-go/mscclpp/framework/device/host"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
	"github.com/mscclpp-go/mscclpp/framework/ring"
)

// A peer in a process of its own. It inherits the memfd of rank 0 as descriptor 3,
// and leaves its own in descriptor 4, a socket, without any bootstrap: the test
// writes down by hand what package comm does.
//
// The memory of each side begins with two words: its inbox, then its data.
const (
	peerBytes  = 1 << 20
	dataOffset = 64
)

// child is rank 1: it answers each of rank 0's signals with a put and a signal.
func child(role string) int {
	if err := echo(role); err != nil {
		fmt.Fprintln(os.Stderr, "child:", err)
		return 1
	}
	return 0
}

func echo(role string) error {
	dev, err := host.Open()
	if err != nil {
		return err
	}
	theirs, err := dev.Map(framework.Mapping{Bytes: peerBytes, Shares: []framework.Share{{Kind: framework.ShareMemFD, FD: os.NewFile(3, "rank 0")}}})
	if err != nil {
		return err
	}
	mine, err := dev.Map(framework.Mapping{Bytes: peerBytes, Shares: []framework.Share{{Kind: framework.ShareMemFD, FD: os.NewFile(4, "rank 1")}}})
	if err != nil {
		return err
	}
	if role == "killed" {
		word(theirs, 0).Add(1) // ready
		select {}
	}
	for n := uint64(1); n <= rounds; n++ {
		if !reaches(word(mine, 0), n) {
			return fmt.Errorf("no signal %d within 20 s", n)
		}
		value := binary.LittleEndian.Uint64(device.Bytes(mine)[dataOffset:])
		if value != n*n {
			return fmt.Errorf("signal %d came before its data: %d", n, value)
		}
		binary.LittleEndian.PutUint64(device.Bytes(theirs)[dataOffset:], value+1)
		word(theirs, 0).Add(1)
	}
	return nil
}

const rounds = 300

func word(m device.Memory, offset uint64) *atomic.Uint64 {
	return (*atomic.Uint64)(unsafe.Pointer(&device.Bytes(m)[offset]))
}

// reaches waits until a counter has a value, for 20 s at most. It yields: other
// processes of the test may need the core.
func reaches(w *atomic.Uint64, value uint64) bool {
	for end := time.Now().Add(4 * time.Minute); w.Load() < value; {
		if time.Now().After(end) {
			return false
		}
		runtime.Gosched()
		_, _, _ = unix.Syscall(unix.SYS_SCHED_YIELD, 0, 0, 0)
	}
	return true
}

// spawn starts the child. Both memories are made here; the child maps them.
func spawn(t *testing.T, role string) (cmd *exec.Cmd, mine, theirs device.Memory) {
	t.Helper()
	dev, err := host.Open()
	if err != nil {
		t.Fatal(err)
	}
	cmd = exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), roleKey+"="+role)
	cmd.Stderr = os.Stderr
	for _, m := range []*device.Memory{&mine, &theirs} {
		if *m, err = dev.Alloc(peerBytes); err != nil {
			t.Fatal(err)
		}
		shares, err := (*m).Export()
		if err != nil {
			t.Fatal(err)
		}
		cmd.ExtraFiles = append(cmd.ExtraFiles, shares[1].FD)
		t.Cleanup(func() { (*m).Close(); framework.Parcel{Shares: shares}.Close() })
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	return cmd, mine, theirs
}

// link makes a port channel to memory, as if a peer had registered it.
type link struct {
	tr    framework.Transport
	proxy framework.Proxy
	ring  *ring.Ring
}

func portTo(t *testing.T, src, dst device.Memory) *link {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 4*time.Minute)
	defer cancel()
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	tr := embedded(t)
	register := func(m device.Memory) framework.Registration {
		shares, err := m.Export()
		check(err)
		defer framework.Parcel{Shares: shares}.Close()
		r, err := tr.Register(ctx, framework.Segment{Device: framework.Host, Shares: shares, Bytes: m.Bytes()})
		check(err)
		return r
	}
	listen := func(rank int) framework.Endpoint {
		e, err := tr.Listen(ctx, framework.EndpointConfig{Kind: framework.KindPort, Rank: rank, Ranks: []int{0, 1}, Device: framework.Host})
		check(err)
		return e
	}
	own, far := register(src), register(dst)
	local, other := listen(0), listen(1)
	conn, err := tr.Connect(ctx, local.ID, []framework.Peer{{Rank: 1, Address: other.Address}})
	check(err)
	l := &link{tr: tr}
	l.proxy, err = tr.(framework.Proxier).NewProxy(ctx)
	check(err)
	check(l.proxy.BindMemory(ctx, 0, framework.MemoryBinding{Local: own.ID}))
	check(l.proxy.BindMemory(ctx, 1, framework.MemoryBinding{Conn: conn, Key: far.Key}))
	check(l.proxy.BindSemaphore(ctx, 0, framework.SemaphoreBinding{Conn: conn, Key: far.Key}))
	l.ring, err = ring.New(64)
	check(err)
	share, err := l.ring.Share()
	check(err)
	check(l.proxy.Start(ctx, share))
	share.Close()
	t.Cleanup(func() {
		l.proxy.Stop(context.Background())
		l.ring.Close()
		own.Key.Close()
		far.Key.Close()
		tr.Close(context.Background(), local.ID)
		tr.Close(context.Background(), other.ID)
		tr.Close(context.Background(), own.ID)
		tr.Close(context.Background(), far.ID)
	})
	return l
}

func put(kind, dst, src, bytes uint64) kernel.Trigger {
	return kernel.TriggerFields{Kind: kind, Bytes: bytes, From: src, To: dst, Dst: 1}.Pack()
}

// Two processes exchange through a port in one direction and mapped memory in the
// other: what a signal announces is there.
func TestTwoProcesses(t *testing.T) {
	cmd, mine, theirs := spawn(t, "echo")
	src, err := func() (device.Memory, error) {
		dev, err := host.Open()
		if err != nil {
			return nil, err
		}
		return dev.Alloc(4096)
	}()
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	l := portTo(t, src, theirs)
	for n := uint64(1); n <= rounds; n++ {
		binary.LittleEndian.PutUint64(device.Bytes(src), n*n)
		if _, err := l.ring.Push(put(kernel.TriggerData|kernel.TriggerSignal, dataOffset, 0, 8)); err != nil {
			t.Fatal(err)
		}
		if !reaches(word(mine, 0), n) {
			t.Fatalf("no answer to signal %d within 20 s", n)
		}
		if got := binary.LittleEndian.Uint64(device.Bytes(mine)[dataOffset:]); got != n*n+1 {
			t.Fatalf("answer %d: %d: expected %d", n, got, n*n+1)
		}
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}

// A peer that is killed takes nothing with it: its memory stays mapped where it is
// mapped, so puts to it go on until the communicator learns of the death.
func TestKilledPeer(t *testing.T) {
	cmd, mine, theirs := spawn(t, "killed")
	if !reaches(word(mine, 0), 1) {
		t.Fatal("the child is not ready within 20 s")
	}
	l := portTo(t, mine, theirs)
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	cmd.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), 4*time.Minute)
	defer cancel()
	var pos uint64
	for range 200 {
		var err error
		if pos, err = l.ring.PushContext(ctx, put(kernel.TriggerData|kernel.TriggerSignal|kernel.TriggerFlush, dataOffset, dataOffset, peerBytes-dataOffset)); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.ring.WaitFlushed(ctx, 0, pos); err != nil {
		t.Fatal(err)
	}
	if n := word(theirs, 0).Load(); n != 200 {
		t.Errorf("%d signals: expected 200", n)
	}
}
