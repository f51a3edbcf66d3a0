package tcp_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
	"github.com/mscclpp-go/mscclpp/framework/memfd"
	"github.com/mscclpp-go/mscclpp/framework/ring"
	"github.com/mscclpp-go/mscclpp/transports/tcp"
)

// least is what every machine reaches that is not busy all the time: the best of many
// runs on both sides counts, and they end when enough is reached. The published figures are
// measured by scripts/bench-tcp.sh, on a quiet machine.
const (
	least  = 0.5
	enough = 0.9
)

// yardstick builds the pair of C processes.
func yardstick(t testing.TB) string {
	t.Helper()
	cc, err := exec.LookPath("cc")
	if err != nil {
		t.Skip("no C compiler")
	}
	out := filepath.Join(t.TempDir(), "peer")
	if text, err := exec.CommandContext(t.Context(), cc, "-O2", "-Wall", "-Werror", "-pthread", "-o", out, "../../bench/tcp/peer.c").CombinedOutput(); err != nil {
		t.Fatalf("build bench/tcp/peer.c: %v\n%s", err, text)
	}
	return out
}

// theirs is the time of one message between the C processes.
func theirs(t testing.TB, peer string, streams int, bytes uint64, count int) time.Duration {
	t.Helper()
	text, err := exec.CommandContext(t.Context(), peer, "put", strconv.Itoa(streams), fmt.Sprintf("%d:%d", bytes, count)).Output()
	if err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	var row struct {
		Bytes uint64  `json:"bytes"`
		Time  float64 `json:"time_us"`
	}
	if err := json.Unmarshal(text, &row); err != nil || row.Bytes != bytes || !(row.Time > 0) {
		t.Fatalf("%q: expected the time of %d bytes: %v", text, bytes, err)
	}
	return time.Duration(row.Time * 1e3)
}

// ringSlots is the most that is pushed at once, so that the producer never waits.
const ringSlots = 1 << 14

// plugged is a port channel between two plugin processes, with memory of this one.
type plugged struct {
	proxy framework.Proxy
	ring  *ring.Ring
}

func plug(t testing.TB, streams int, bytes uint64) *plugged {
	t.Helper()
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	ctx := t.Context()
	var ends [2]framework.Transport
	var listens [2]framework.Endpoint
	var regs [2]framework.Registration
	for i := range ends {
		c := asPlugin(t, map[string]any{"streams": streams, "stripe": 1 << 20})
		t.Cleanup(func() { _ = c.Shutdown() })
		ends[i] = c
		var err error
		listens[i], err = c.Listen(ctx, framework.EndpointConfig{Kind: framework.KindPort, Rank: i, Ranks: []int{0, 1}, Device: framework.Host})
		check(err)
		m, err := memfd.New("tcp-speed", bytes, memfd.Options{})
		check(err)
		t.Cleanup(func() { m.Close() })
		regs[i], err = c.Register(ctx, framework.Segment{Device: framework.Host, Shares: []framework.Share{{Kind: framework.ShareMemFD, FD: m.File()}}, Bytes: bytes})
		check(err)
	}
	conn, err := ends[0].Connect(ctx, listens[0].ID, []framework.Peer{{Rank: 1, Address: listens[1].Address}})
	check(err)
	p := &plugged{}
	p.proxy, err = ends[0].(framework.Proxier).NewProxy(ctx)
	check(err)
	check(p.proxy.BindMemory(ctx, 0, framework.MemoryBinding{Local: regs[0].ID}))
	check(p.proxy.BindMemory(ctx, 1, framework.MemoryBinding{Conn: conn, Key: regs[1].Key}))
	check(p.proxy.BindSemaphore(ctx, 0, framework.SemaphoreBinding{Conn: conn, Key: regs[1].Key}))
	p.ring, err = ring.New(ringSlots)
	check(err)
	share, err := p.ring.Share()
	check(err)
	defer share.Close()
	check(p.proxy.Start(ctx, share))
	t.Cleanup(func() {
		stop, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := p.proxy.Stop(stop); err != nil {
			t.Error(err)
		}
		p.ring.Close()
	})
	return p
}

// send puts count messages, waits until they are there, and returns the time of one.
// It sleeps while it waits: the plugins and their peers need the cores.
func (p *plugged) send(t testing.TB, bytes uint64, count int) time.Duration {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	start := time.Now()
	var pos uint64
	for n := range count {
		kind := uint64(kernel.TriggerData)
		if n == count-1 {
			kind |= kernel.TriggerFlush
		}
		var err error
		if pos, err = p.ring.PushContext(ctx, kernel.TriggerFields{Kind: kind, Bytes: bytes, Dst: 1}.Pack()); err != nil {
			t.Fatal(err)
		}
	}
	for !p.ring.Flushed(0, pos) {
		if err := errors.Join(p.ring.Err(), ctx.Err()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(50 * time.Microsecond)
	}
	return time.Since(start) / time.Duration(count)
}

// TestSpeed compares the plugins with a C sender and receiver over loopback, in
// turns: the same size, the same number of streams, the same reuse of memory.
func TestSpeed(t *testing.T) {
	if testing.Short() {
		t.Skip("needs a few seconds of both cores")
	}
	if raceEnabled {
		t.Skip("needs a build without the race detector, which is a part of the producer and of the plugins that are timed")
	}
	peer := yardstick(t)
	rounds, total := 30, uint64(64<<20)
	if n, err := strconv.Atoi(os.Getenv("TCP_TEST_ROUNDS")); err == nil && n > 0 {
		rounds = n
	}
	for _, c := range []struct {
		streams int
		bytes   uint64
	}{{1, 4 << 10}, {1, 64 << 10}, {1, 1 << 20}, {1, 16 << 20}, {4, 64 << 10}, {4, 16 << 20}} {
		t.Run(fmt.Sprintf("%d_streams_%d_KiB", c.streams, c.bytes>>10), func(t *testing.T) {
			p := plug(t, c.streams, c.bytes)
			count := int(min(ringSlots, max(4, total/c.bytes)))
			p.send(t, c.bytes, 2)
			var ours, yard time.Duration
			ratio := 0.0
			for n := 0; n < rounds && ratio < enough; n++ {
				if d := theirs(t, peer, c.streams, c.bytes, count); n == 0 || d < yard {
					yard = d
				}
				if d := p.send(t, c.bytes, count); n == 0 || d < ours {
					ours = d
				}
				if n > 1 { // a single pair of runs says nothing
					ratio = float64(yard) / float64(ours)
				}
			}
			t.Logf("%s: %d streams, %d KiB: best %v, C pair %v: %.2f", tcp.Name, c.streams, c.bytes>>10, ours, yard, ratio)
			if ratio < least {
				t.Errorf("%.2f of the speed of the C pair, expected at least %.2f", ratio, least)
			}
		})
	}
}
