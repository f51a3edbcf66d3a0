package hook_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/hook"
	"github.com/mscclpp-go/mscclpp/framework/memfd"
	"github.com/mscclpp-go/mscclpp/framework/transporttest"
	"github.com/mscclpp-go/mscclpp/framework/transporttest/loopback"
)

// A transport with layers is a transport: the whole suite passes through them.
func TestLayersAreTransparent(t *testing.T) {
	var mu sync.Mutex
	ops := map[string]int{}
	transporttest.Run(t, func(testing.TB) *transporttest.Side {
		count := hook.Observe(func(c hook.Call) {
			mu.Lock()
			defer mu.Unlock()
			ops[c.Op]++
		})
		quiet := hook.Trace(slog.New(slog.DiscardHandler))
		return transporttest.Embedded(hook.Wrap(loopback.New(), count, quiet, hook.Fault()))
	})
	for _, op := range []string{"describe", "register", "listen", "connect", "attach", "close", "new proxy",
		"bind memory", "bind semaphore", "start proxy", "wait for proxy", "stop proxy"} {
		if ops[op] == 0 {
			t.Errorf("no call of %q was observed", op)
		}
	}
}

func segment(t *testing.T) framework.Segment {
	t.Helper()
	m, err := memfd.New("hook", 4096, memfd.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return framework.Segment{
		Device: framework.Host, Bytes: 4096,
		Shares: []framework.Share{{Kind: framework.ShareMemFD, FD: m.File()}},
	}
}

func TestOrderOfLayers(t *testing.T) {
	var order []string
	layer := func(name string) hook.Layer {
		return func(ctx context.Context, c *hook.Call, next func(context.Context) error) error {
			order = append(order, "enter "+name)
			defer func() { order = append(order, "leave "+name) }()
			return next(ctx)
		}
	}
	w := hook.Wrap(loopback.New(), layer("a"), layer("b"))
	if _, err := w.Describe(t.Context()); err != nil {
		t.Fatal(err)
	}
	if want := []string{"enter a", "enter b", "leave b", "leave a"}; !slices.Equal(order, want) {
		t.Errorf("order %q, want %q", order, want)
	}
}

func TestFaultNth(t *testing.T) {
	w := hook.Wrap(loopback.New(), hook.Fault(hook.Rule{Op: "register", Nth: 2, Err: framework.ErrPeer}))
	seg := segment(t)
	for i := 1; i <= 3; i++ {
		reg, err := w.Register(t.Context(), seg)
		reg.Key.Close()
		if (err != nil) != (i == 2) {
			t.Errorf("call %d: %v", i, err)
		}
		if i == 2 && (!errors.Is(err, framework.ErrPeer) || !strings.Contains(err.Error(), "injected")) {
			t.Errorf("call 2: %v: want an injected fault of class peer failed", err)
		}
	}
	if _, err := w.Describe(t.Context()); err != nil {
		t.Errorf("another operation fails: %v", err)
	}
}

// A lost answer leaves nothing behind: the caller cannot close what it never got.
func TestFaultAfterFreesTheResult(t *testing.T) {
	inner := loopback.New()
	w := hook.Wrap(inner, hook.Fault(hook.Rule{Op: "register", After: true}))
	seg := segment(t)
	before := descriptors(t)
	for range 10 {
		if _, err := w.Register(t.Context(), seg); !errors.Is(err, framework.ErrUnavailable) {
			t.Fatalf("register: %v, want ErrUnavailable", err)
		}
	}
	if now := descriptors(t); now > before {
		t.Errorf("%d descriptors are left of lost answers", now-before)
	}
}

func descriptors(t *testing.T) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

func TestFaultHangEndsWithContext(t *testing.T) {
	w := hook.Wrap(loopback.New(), hook.Fault(hook.Rule{Op: "describe", Hang: true, Err: framework.ErrPlugin}))
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
	defer cancel()
	if _, err := w.Describe(ctx); !errors.Is(err, framework.ErrPlugin) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("describe: %v, want the rule's class and the end of the context", err)
	}
}

func TestFaultDelay(t *testing.T) {
	const delay = 10 * time.Millisecond
	w := hook.Wrap(loopback.New(), hook.Fault(hook.Rule{Delay: delay}))
	start := time.Now()
	if _, err := w.Describe(t.Context()); err != nil || time.Since(start) < delay {
		t.Errorf("describe after %v: %v, want success after %v", time.Since(start), err, delay)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := w.Describe(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("describe with a canceled context: %v", err)
	}
}

// plain has no optional method at all.
type plain struct{ framework.Transport }

func TestMissingMethods(t *testing.T) {
	w := hook.Wrap(plain{loopback.New()})
	_, probe := w.(framework.Prober).Probe(t.Context(), framework.Facts{})
	_, image := w.(framework.Imager).Image(t.Context(), "x")
	_, proxy := w.(framework.Proxier).NewProxy(t.Context())
	for _, err := range []error{probe, image, proxy} {
		if !errors.Is(err, framework.ErrUnsupported) {
			t.Errorf("%v: want ErrUnsupported", err)
		}
	}
}

func TestTrace(t *testing.T) {
	var text bytes.Buffer
	log := slog.New(slog.NewTextHandler(&text, &slog.HandlerOptions{Level: slog.LevelInfo}))
	w := hook.Wrap(loopback.New(), hook.Trace(log))
	if _, err := w.Describe(t.Context()); err != nil {
		t.Fatal(err)
	}
	if text.Len() != 0 {
		t.Errorf("success is logged at level info: %s", text.String())
	}
	_, err := w.Connect(t.Context(), 99, nil)
	if line := text.String(); err == nil || !strings.Contains(line, "op=connect") || !strings.Contains(line, "id=99") || !strings.Contains(line, "invalid") {
		t.Errorf("a failure is logged as %q", line)
	}
}
