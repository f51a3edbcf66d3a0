package tcp_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/device"
	"github.com/mscclpp-go/mscclpp/framework/memfd"
	"github.com/mscclpp-go/mscclpp/framework/ring"
	"github.com/mscclpp-go/mscclpp/transports/tcp"
)

// least is what catches disasters on a busy machine. What is promised, 0.9, is
// measured on a quiet one: go test -run Speed -v ./transports/tcp
const least = 0.1

// yardstick builds the pair of C processes.
func yardstick(t testing.TB) string {
	t.Helper()
	cc, err := exec.LookPath("cc")
	if err != nil {
		t.Skip("no C compiler")
	}
	out := filepath.Join(t.TempDir(), "peer")
	if text, err := exec.CommandContext(t.Context(), cc, "-O2", "-Wall", "-Werror", "-pthread", "-o", out, "testdata/peer.c").CombinedOutput(); err != nil {
		t.Fatalf("build testdata/peer.c: %v\n%s", err, text)
	}
	return out
}

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
		c := asPlugin(t, map[string]any{"streams": streams, "stripe": 1 << 16})
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
	p.ring, err = ring.New(256)
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

// send puts count messages and waits until they are there.
func (p *plugged) send(t testing.TB, bytes uint64, count int) time.Duration {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	start := time.Now()
	var pos uint64
	for n := range count {
		kind := uint64(device.TriggerData)
		if n == count-1 {
			kind |= device.TriggerFlush
		}
		var err error
		if pos, err = p.ring.PushContext(ctx, device.Trigger{Fst: bytes, Snd: 1<<41 | kind<<50}); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.ring.WaitFlushed(ctx, 0, pos); err != nil {
		t.Fatal(err)
	}
	return time.Since(start)
}

// TestSpeed compares the plugins with a C sender and receiver over loopback, in
// turns: the same size, the same number of streams, the same reuse of memory.
func TestSpeed(t *testing.T) {
	if testing.Short() {
		t.Skip("needs a few seconds of both cores")
	}
	peer := yardstick(t)
	rounds, total := 5, uint64(256<<20)
	if n, err := strconv.Atoi(os.Getenv("TCP_TEST_ROUNDS")); err == nil && n > 0 {
		rounds = n
	}
	for _, c := range []struct {
		streams int
		bytes   uint64
	}{{1, 64 << 10}, {1, 1 << 20}, {1, 8 << 20}, {2, 8 << 20}, {4, 8 << 20}, {4, 64 << 20}} {
		t.Run(fmt.Sprintf("%d_streams_%d_KiB", c.streams, c.bytes>>10), func(t *testing.T) {
			p := plug(t, c.streams, c.bytes)
			count := int(max(4, total/c.bytes))
			p.send(t, c.bytes, 2)
			var ratios, rates, yards []float64
			for range rounds {
				text, err := exec.CommandContext(t.Context(), peer, strconv.Itoa(c.streams), strconv.FormatUint(c.bytes, 10), strconv.Itoa(count)).Output()
				if err != nil {
					t.Fatalf("%v: %s", err, text)
				}
				theirs, err := strconv.ParseFloat(strings.TrimSpace(string(text)), 64)
				if err != nil {
					t.Fatal(err)
				}
				ours := p.send(t, c.bytes, count).Seconds()
				ratios = append(ratios, theirs/ours)
				size := float64(c.bytes) * float64(count) / 1e9
				rates, yards = append(rates, size/ours), append(yards, size/theirs)
			}
			slices.Sort(ratios)
			// Other work on the machine slows single runs; the best of each is what
			// the code can do.
			best := slices.Max(rates) / slices.Max(yards)
			t.Logf("%s: %d streams, %d KiB: best %.2f GB/s, C pair %.2f GB/s: %.2f; turn by turn %.2f (%.2f to %.2f)", tcp.Name, c.streams, c.bytes>>10,
				slices.Max(rates), slices.Max(yards), best, ratios[len(ratios)/2], ratios[0], ratios[len(ratios)-1])
			if best < least {
				t.Errorf("%.2f of the speed of the C pair, expected at least %.2f", best, least)
			}
		})
	}
}
