package plugintest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/internal/leaktest"
	"github.com/mscclpp-go/mscclpp/internal/promise"
	"github.com/mscclpp-go/mscclpp/plugins/internal/mirror"
	"github.com/mscclpp-go/mscclpp/plugins/internal/wire"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

func openFDs(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

// wrapped is a mirror behind the boundary. At the end no descriptor may be left.
func wrapped(t *testing.T) (Client, *mirror.Transport) {
	t.Helper()
	before := openFDs(t)
	t.Cleanup(func() {
		for deadline := time.Now().Add(3 * time.Minute); ; runtime.Gosched() {
			if after := openFDs(t); after <= before {
				return
			} else if time.Now().After(deadline) {
				t.Errorf("%d descriptors open, expected %d", after, before)
				return
			}
		}
	})
	cfg := mirror.Config{Name: "mirror"}
	transport, err := mirror.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return Wrap(t, transport), transport.(*mirror.Transport)
}

func memfd(t *testing.T, text string) framework.Share {
	t.Helper()
	fd, err := unix.MemfdCreate("test", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), "test")
	t.Cleanup(func() { f.Close() })
	fmt.Fprint(f, text)
	return framework.Share{Kind: framework.ShareMemFD, FD: f}
}

func text(t *testing.T, s framework.Share) string {
	t.Helper()
	if s.FD == nil {
		return string(s.Blob)
	}
	b, err := io.ReadAll(io.NewSectionReader(s.FD, 0, 1000))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestDescribe(t *testing.T) {
	c, direct := wrapped(t)
	want, _ := direct.Describe(t.Context())
	got, err := c.Describe(t.Context())
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v\nexpected %+v", got, err, want)
	}
}

func TestRegister(t *testing.T) {
	c, direct := wrapped(t)
	seg := framework.Segment{
		Device: framework.Device{Type: "cuda", Index: 3}, Offset: 4096, Bytes: 1 << 33, Addr: 0xdead,
		Shares: []framework.Share{memfd(t, "memory"), {Kind: framework.ShareFabric, Blob: []byte("handle")}},
	}
	r, err := c.Register(t.Context(), seg)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := string(r.Key.Data), fmt.Sprintf("cuda:3+4096+%d", uint64(1<<33)); got != want {
		t.Errorf("segment: got %s, expected %s", got, want)
	}
	if len(r.Key.Shares) != 2 || text(t, r.Key.Shares[0]) != "memory" || text(t, r.Key.Shares[1]) != "handle" {
		t.Errorf("shares: got %v", r.Key.Shares)
	}
	if text(t, seg.Shares[0]) != "memory" {
		t.Error("the caller lost its descriptor")
	}
	if err := r.Key.Close(); err != nil {
		t.Error(err)
	}
	for range 2 { // idempotent
		if err := c.Close(t.Context(), r.ID); err != nil {
			t.Error(err)
		}
	}
	if n := direct.Held(); n != 0 {
		t.Errorf("%d ids left, expected none", n)
	}
}

func TestRegisterRefused(t *testing.T) {
	c, _ := wrapped(t)
	_, err := c.Register(t.Context(), framework.Segment{Shares: []framework.Share{memfd(t, "x")}})
	if !errors.Is(err, framework.ErrInvalid) || err.Error() != "mirror register: invalid: 0 bytes" {
		t.Errorf("got %v, expected the transport's own error", err)
	}
	for _, s := range []framework.Share{{Kind: framework.ShareMemFD}, {Kind: framework.ShareFabric, FD: memfd(t, "").FD}} {
		if _, err := c.Register(t.Context(), framework.Segment{Bytes: 1, Shares: []framework.Share{s}}); !errors.Is(err, framework.ErrInvalid) {
			t.Errorf("share %v: got %v, expected ErrInvalid", s, err)
		}
	}
}

func TestListen(t *testing.T) {
	c, direct := wrapped(t)
	cfg := framework.EndpointConfig{
		Kind: framework.KindSwitch, Rank: 1, Ranks: []int{1, 4, 6}, Group: "world/0",
		Device: framework.Device{Type: "hip", Index: 1},
		Facts: framework.Facts{
			Host: "boot-id", NUMA: -1, NICs: []framework.NIC{{Name: "mlx5_0", Distance: "PIX", NUMA: 1}},
			Other: map[string]string{"nvidia/clique": "2"}, LinksKnown: true,
			Links: []framework.DeviceLink{{Peer: "0000:19:00.0", Count: 2, Version: 4, Switch: true, Kind: "AcmeLink 2", Rate: 200, Latency: 0.9}, {Peer: "a", Count: 1}},
		},
		Bytes: 1 << 40, Pending: 128,
	}
	e, err := c.Listen(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(direct.Seen, []framework.EndpointConfig{cfg}) {
		t.Errorf("configuration: got %+v\nexpected %+v", direct.Seen, cfg)
	}
	want := []framework.Object{{Kind: framework.ObjectMulticast, Bytes: 1 << 40, Ranks: 3}}
	if !reflect.DeepEqual(e.Create, want) || !reflect.DeepEqual(e.Reach, []string{"host:boot-id"}) || text(t, e.Address.Shares[0]) != "blob" {
		t.Errorf("endpoint: got %+v", e)
	}
	_, err = c.Listen(t.Context(), framework.EndpointConfig{Kind: framework.KindPort})
	if !errors.Is(err, framework.ErrUnsupported) || err.Error() != "mirror listen: unsupported: port channels" {
		t.Errorf("port: got %v", err)
	}
}

func TestAttach(t *testing.T) {
	c, _ := wrapped(t)
	keys := make([]framework.Parcel, 100) // 200 descriptors each way
	for i := range keys {
		keys[i].Shares = []framework.Share{memfd(t, fmt.Sprint("a", i)), memfd(t, fmt.Sprint("b", i))}
	}
	keys[7].Shares = nil
	a, err := c.Attach(t.Context(), 11, 12, keys)
	if err != nil {
		t.Fatal(err)
	}
	if len(a.Mappings) != 100 || len(a.Steps) != 200 {
		t.Fatalf("got %d mappings and %d steps, expected 100 and 200", len(a.Mappings), len(a.Steps))
	}
	for i, m := range a.Mappings {
		if m.Role != framework.RolePeer || m.Peer != i || m.Offset != 11 || m.Bytes != 12 {
			t.Errorf("mapping %d: got %+v", i, m)
		}
		bind, barrier := a.Steps[2*i], a.Steps[2*i+1]
		if bind.Op != framework.StepBind || bind.Mapping != i || bind.Object != 1 || bind.Slot != 2 || bind.Offset != 3 || bind.Bytes != 4 {
			t.Errorf("step %d: got %+v", i, bind)
		}
		if barrier != (framework.Step{Op: framework.StepBarrier}) {
			t.Errorf("step %d: got %+v, expected a barrier", i, barrier)
		}
		if i == 7 {
			if bind.Share != nil || len(m.Shares) != 0 {
				t.Errorf("mapping 7 has shares: %+v", m)
			}
			continue
		}
		if text(t, m.Shares[0]) != fmt.Sprint("a", i) || text(t, m.Shares[1]) != fmt.Sprint("b", i) || text(t, *bind.Share) != fmt.Sprint("a", i) {
			t.Errorf("mapping %d: shares were exchanged", i)
		}
	}
	if err := a.Close(); err != nil {
		t.Error(err)
	}
}

func TestConnectBlamesPeer(t *testing.T) {
	c, _ := wrapped(t)
	connect := func(ctx context.Context, rank int, address string) error {
		_, err := c.Connect(ctx, 1, []framework.Peer{{Rank: rank, Address: framework.Parcel{Data: []byte(address), Shares: []framework.Share{memfd(t, "x")}}}})
		return err
	}
	for address, want := range map[string]struct {
		class error
		peer  int
		text  string
	}{
		"bad":     {framework.ErrPeer, 5, "mirror connect rank 5: peer failed: no such port"},
		"wrapped": {framework.ErrPeer, 5, "mirror connect rank 5: two attempts: tcp dial rank 5: peer failed"},
		"plain":   {nil, 5, "mirror connect rank 5: an error without class"},
	} {
		err := connect(t.Context(), 5, address)
		if framework.Class(err) != want.class || framework.PeerOf(err) != want.peer || err.Error() != want.text {
			t.Errorf("%s: got %v (class %v, peer %d), expected %q", address, err, framework.Class(err), framework.PeerOf(err), want.text)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	watch := promise.Begin()
	if err := connect(ctx, 2, "slow"); !errors.Is(err, context.DeadlineExceeded) || framework.PeerOf(err) != 2 {
		t.Errorf("slow: got %v, expected a deadline that blames rank 2", err)
	}
	if err := watch.Kept(time.Second); err != nil {
		t.Errorf("a deadline of 50 ms passed %v", err)
	}
	ctx, cancel = context.WithCancel(t.Context())
	cancel()
	if err := connect(ctx, 2, "slow"); !errors.Is(err, context.Canceled) {
		t.Errorf("canceled: got %v", err)
	}
	if id, err := c.Connect(t.Context(), 1, nil); err != nil || id == 0 {
		t.Errorf("connect: got %d, %v", id, err)
	}
}

func TestImage(t *testing.T) {
	c, _ := wrapped(t)
	data, err := c.Image(t.Context(), "good")
	if err != nil || !bytes.Equal(data, mirror.ImageBytes) {
		t.Errorf("got %d bytes, %v, expected %d", len(data), err, len(mirror.ImageBytes))
	}
	if _, err := c.Image(t.Context(), "torn"); !errors.Is(err, framework.ErrPlugin) || !strings.Contains(err.Error(), "sha256") {
		t.Errorf("torn image: got %v, expected ErrPlugin that names the checksum", err)
	}
	if _, err := c.Image(t.Context(), "none"); !errors.Is(err, framework.ErrInvalid) {
		t.Errorf("unknown image: got %v, expected ErrInvalid", err)
	}
}

func TestProbe(t *testing.T) {
	c, _ := wrapped(t)
	live, err := c.Probe(t.Context(), framework.Facts{Host: "h", Other: map[string]string{"a": "b"}})
	want := framework.Live{
		Available: true, Reason: "h", Facts: map[string]string{"a": "b"}, WholeLines: true, LinksKnown: true,
		Links: []framework.DeviceLink{{Peer: "0000:19:00.0", Count: 18, Version: 4, Switch: true}, {Peer: "0000:3b:00.0", Count: 4}},
	}
	if err != nil || !reflect.DeepEqual(live, want) {
		t.Errorf("got %+v, %v, expected %+v", live, err, want)
	}
}

func TestMessageLimit(t *testing.T) {
	c, _ := wrapped(t)
	attach := func(bytes int) error {
		_, err := c.Attach(t.Context(), 1, 0, []framework.Parcel{{Data: make([]byte, bytes)}})
		return err
	}
	if err := attach(8 << 20); err != nil { // twice gRPC's own limit
		t.Errorf("8 MiB: %v", err)
	}
	if err := attach(wire.MaxMessage + 1); !errors.Is(err, framework.ErrInvalid) || !strings.Contains(err.Error(), "64 MiB") {
		t.Errorf("64 MiB and more: got %v, expected ErrInvalid that names the limit", err)
	}
}

// bare claims nothing and has no optional method.
type bare struct{ framework.Transport }

func (bare) Describe(context.Context) (framework.Description, error) {
	return framework.Description{Name: "bare"}, nil
}

func TestUnclaimedIsRefused(t *testing.T) {
	modest, err := mirror.New(mirror.Config{Name: "modest"})
	if err != nil {
		t.Fatal(err)
	}
	for _, transport := range []framework.Transport{bare{}, modestTransport{modest}} {
		c := Wrap(t, transport)
		_, e1 := c.Probe(t.Context(), framework.Facts{})
		_, e2 := c.Image(t.Context(), "good")
		_, e3 := c.NewProxy(t.Context())
		for _, err := range []error{e1, e2, e3} {
			if !errors.Is(err, framework.ErrUnsupported) {
				t.Errorf("%T: got %v, expected ErrUnsupported", transport, err)
			}
		}
	}
}

// modestTransport has every method and claims none.
type modestTransport struct{ framework.Transport }

func (modestTransport) Describe(context.Context) (framework.Description, error) {
	return framework.Description{Name: "modest"}, nil
}

func TestProxy(t *testing.T) {
	c, _ := wrapped(t)
	p, err := c.NewProxy(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	key := framework.Parcel{Data: []byte("key"), Shares: []framework.Share{memfd(t, "k")}}
	if err := p.BindMemory(t.Context(), 1, framework.MemoryBinding{Conn: 3, Key: key}); err != nil {
		t.Error(err)
	}
	err = p.BindSemaphore(t.Context(), 9, framework.SemaphoreBinding{Conn: 4, Key: key, Offset: 3})
	if want := "semaphore 9 of connection 4 at 3 with 1 shares"; !errors.Is(err, framework.ErrInvalid) || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, expected %q", err, want)
	}
	if err := p.Start(t.Context(), memfd(t, "ring")); err != nil {
		t.Error(err)
	}
	if err := p.Start(t.Context(), framework.Share{Kind: framework.ShareFabric}); err == nil {
		t.Error("a ring without descriptor was accepted")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := p.Wait(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("wait for a running proxy: got %v, expected its deadline", err)
	}
	var waiting sync.WaitGroup
	for range 3 {
		waiting.Go(func() {
			if err := p.Wait(context.Background()); err != nil {
				t.Errorf("wait: got %v, expected nil after Stop", err)
			}
		})
	}
	for range 2 {
		if err := p.Stop(t.Context()); err != nil {
			t.Errorf("stop: %v", err)
		}
	}
	waiting.Wait()
	if err := p.Wait(t.Context()); err != nil {
		t.Errorf("wait after stop: %v", err)
	}
}

func TestProxyDies(t *testing.T) {
	c, _ := wrapped(t)
	check := func(err error) {
		t.Helper()
		if !errors.Is(err, framework.ErrInvalid) || framework.PeerOf(err) != 3 || err.Error() != "mirror drain rank 3: invalid: slot 666: why" {
			t.Errorf("got %v, expected the typed cause of death", err)
		}
	}
	for _, waitFirst := range []bool{true, false} {
		p, err := c.NewProxy(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := p.BindMemory(t.Context(), 666, framework.MemoryBinding{Key: framework.Parcel{Data: []byte("why")}}); err != nil {
			t.Fatal(err)
		}
		if waitFirst {
			check(p.Wait(t.Context()))
		}
		if err := p.Stop(t.Context()); err != nil {
			t.Errorf("stop: %v", err)
		}
		check(p.Wait(t.Context()))
	}
}

func TestAfterTheEnd(t *testing.T) {
	transport, err := mirror.New(mirror.Config{Name: "mirror"})
	if err != nil {
		t.Fatal(err)
	}
	c, stop, err := Pair(t.Context(), transport)
	if err != nil {
		t.Fatal(err)
	}
	stop()
	stop()
	if _, err := c.Describe(t.Context()); !errors.Is(err, framework.ErrClosed) {
		t.Errorf("got %v, expected ErrClosed", err)
	}
}

func TestConcurrentCalls(t *testing.T) {
	c, direct := wrapped(t)
	var calls sync.WaitGroup
	for i := range 16 {
		share := memfd(t, fmt.Sprint(i))
		calls.Go(func() {
			for range 10 {
				r, err := c.Register(t.Context(), framework.Segment{Bytes: 1, Shares: []framework.Share{share}})
				if err != nil {
					t.Error(err)
					return
				}
				if got := text(t, r.Key.Shares[0]); got != fmt.Sprint(i) {
					t.Errorf("call %d got the descriptor of call %s", i, got)
				}
				r.Key.Close()
				if err := c.Close(t.Context(), r.ID); err != nil {
					t.Error(err)
				}
			}
		})
	}
	calls.Wait()
	if n := direct.Held(); n != 0 {
		t.Errorf("%d ids left", n)
	}
}
