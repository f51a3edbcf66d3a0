package tcp

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
	"github.com/mscclpp-go/mscclpp/internal/promise"
)

// netem spoils the network device that the environment names, and no other: it may be
// loopback, on which much else of the machine depends. scripts/netem-test.sh names it
// in a virtual machine.
func netem(t *testing.T, how ...string) {
	t.Helper()
	dev := os.Getenv("TCP_TEST_NETEM")
	if dev == "" {
		t.Skip("needs a network device that may be spoiled: TCP_TEST_NETEM names none")
	}
	set := func(how ...string) {
		args := append([]string{"qdisc", "replace", "dev", dev, "root", "netem"}, how...)
		if out, err := exec.Command("tc", args...).CombinedOutput(); err != nil {
			t.Fatalf("tc %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
	set(how...)
	t.Cleanup(func() { set("delay", "0ms") })
}

// TestDelayAndLoss sends puts of all kinds over a network that loses a part of the
// packets: all signals come, each after its data.
func TestDelayAndLoss(t *testing.T) {
	netem(t, "delay", "5ms", "loss", "1%")
	const bytes = 1 << 20
	p := linked(t, 8+bytes, two(t, func(c *Config) { c.Stripe = 64 << 10 })).open(64)
	defer p.release()
	for n, size := range []uint64{64, 4 << 10, 100 << 10, bytes} {
		for i := range p.src.Bytes() {
			p.src.Bytes()[i] = byte(n*31 + i)
		}
		if _, err := p.push(kernel.TriggerData|kernel.TriggerSignal, 8, 8, size); err != nil {
			t.Fatal(err)
		}
		until(t, "the signal", func() bool { return p.count() == uint64(n+1) })
		for i := range size {
			if got, want := p.dst.Bytes()[8+i], p.src.Bytes()[8+i]; got != want {
				t.Fatalf("put of %d bytes: byte %d is %d after the signal, want %d", size, i, got, want)
			}
		}
		if err := p.flush(); err != nil { // the source is written again
			t.Fatal(err)
		}
	}
}

// TestEverythingIsLost ends a proxy whose peer's host is not heard of any more.
func TestEverythingIsLost(t *testing.T) {
	const bound = 3 * time.Second
	netem(t, "delay", "1ms")
	p := linked(t, 8+(1<<20), two(t, func(c *Config) { c.PeerTimeout = bound })).open(64)
	defer p.release()
	if err := p.flush(); err != nil {
		t.Fatal(err)
	}
	netem(t, "loss", "100%")
	watch := promise.Begin()
	if _, err := p.push(kernel.TriggerData|kernel.TriggerSignal|kernel.TriggerFlush, 8, 8, 1<<20); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*bound)
	defer cancel()
	err := p.proxy.Wait(ctx)
	if !errors.Is(err, framework.ErrPeer) || framework.PeerOf(err) != 1 {
		t.Fatalf("the proxy ended with %v: expected one that blames rank 1", err)
	}
	if want := fmt.Sprintf("expected a sign of life within %v", bound); !strings.Contains(err.Error(), "silent for") || !strings.Contains(err.Error(), want) {
		t.Errorf("%v: expected how long the host was silent, and %q", err, want)
	}
	if err := watch.Kept(3 * bound); err != nil {
		t.Errorf("noticed %v, with a bound of %v", err, bound)
	}
}
