// Package mirror is a transport for tests of the process boundary: it gives back
// what it gets, so that a test sees what crossed. It moves no data.
package mirror

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mscclpp-go/mscclpp/framework"
)

// Config has an option of each type.
type Config struct {
	Name    string        `help:"Name in the description."`
	Depth   int           `help:"Operations in flight."`
	Spin    time.Duration `help:"How long to poll."`
	NICs    []string      `option:"nics" help:"Adapters."`
	Verbose bool          `help:"Say more."`
	Crash   string        `help:"Panic with this text in Listen."`
	Queue   Queue
}

// Queue is a nested table.
type Queue struct {
	Slots uint32 `help:"Entries."`
}

// Defaults implements the optional method of options.
func (Config) Defaults() Config {
	return Config{Name: "mirror", Depth: 16, Spin: 20 * time.Microsecond, Queue: Queue{Slots: 64}}
}

// Validate implements the optional method of options.
func (c Config) Validate() error {
	if c.Depth < 1 {
		return fmt.Errorf("depth %d: expected 1 or more", c.Depth)
	}
	return nil
}

// Transport is the mirror.
type Transport struct {
	cfg Config

	mu   sync.Mutex
	last framework.ID
	held map[framework.ID][]framework.Share
	Seen []framework.EndpointConfig // the arguments of Listen
}

// New makes a mirror.
func New(cfg Config) (framework.Transport, error) {
	return &Transport{cfg: cfg, held: map[framework.ID][]framework.Share{}}, nil
}

// ImageBytes is larger than one piece of the wire, and not a multiple of it.
var ImageBytes = bytes.Repeat([]byte("kernel!"), 400_000)

// Describe implements framework.Transport.
func (t *Transport) Describe(context.Context) (framework.Description, error) {
	sum := sha256.Sum256(ImageBytes)
	return framework.Description{
		Name: t.cfg.Name, Version: "1.2.3",
		Channels: []framework.Kind{framework.KindMemory, framework.KindSwitch},
		Signal:   framework.SignalDirect,
		Needs:    []framework.Need{framework.NeedMemFD},
		Kernels: []framework.KernelInfo{{
			Collective: "allreduce", Algorithm: "packet", Symbol: "k", Family: "collectives", Types: []string{"f32"},
			Ops: []string{"sum"}, Channels: []framework.Kind{framework.KindMemory}, MaxRanks: 8, MaxThreads: 512,
		}},
		Images: []framework.ImageInfo{
			{ID: "good", Arch: "x86-64-v3", Family: "collectives", Type: "f32", ABI: 1, Layout: "89abcdef", SHA256: hex.EncodeToString(sum[:]), Bytes: uint64(len(ImageBytes))},
			{ID: "torn", Arch: "x86-64-v3", Family: "actor", ABI: 1, SHA256: hex.EncodeToString(sum[:])},
		},
		Proxy: framework.ProxyPlugin,
		Probe: true,
	}, nil
}

// Probe implements framework.Prober.
func (t *Transport) Probe(_ context.Context, f framework.Facts) (framework.Live, error) {
	return framework.Live{
		Available: true, Reason: f.Host, Facts: f.Other, WholeLines: true, LinksKnown: true,
		Links: []framework.DeviceLink{{Peer: "0000:19:00.0", Count: 18, Version: 4, Switch: true}, {Peer: "0000:3b:00.0", Count: 4}},
	}, nil
}

// Image implements framework.Imager.
func (t *Transport) Image(_ context.Context, id string) ([]byte, error) {
	switch id {
	case "good":
		return ImageBytes, nil
	case "torn":
		return ImageBytes[1:], nil
	}
	return nil, fmt.Errorf("%w: no image %q", framework.ErrInvalid, id)
}

func dup(s framework.Share) (framework.Share, error) {
	if s.FD == nil {
		return s, nil
	}
	raw, err := s.FD.SyscallConn()
	if err != nil {
		return s, err
	}
	fd := -1
	cerr := raw.Control(func(n uintptr) { fd, err = unix.FcntlInt(n, unix.F_DUPFD_CLOEXEC, 3) })
	if err = errors.Join(cerr, err); err != nil {
		return s, err
	}
	s.FD = os.NewFile(uintptr(fd), "mirror")
	return s, nil
}

func dupAll(in []framework.Share) ([]framework.Share, error) {
	out := make([]framework.Share, 0, len(in))
	for _, s := range in {
		d, err := dup(s)
		if err != nil {
			return nil, errors.Join(err, framework.Parcel{Shares: out}.Close())
		}
		out = append(out, d)
	}
	return out, nil
}

func (t *Transport) add(shares []framework.Share) framework.ID {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.last++
	t.held[t.last] = shares
	return t.last
}

// Register keeps the shares and returns others as the key.
func (t *Transport) Register(_ context.Context, seg framework.Segment) (framework.Registration, error) {
	if seg.Bytes == 0 {
		return framework.Registration{}, &framework.Error{
			Op: "register", Transport: t.cfg.Name, Peer: framework.NoPeer,
			Err: fmt.Errorf("%w: 0 bytes", framework.ErrInvalid),
		}
	}
	held, err := dupAll(seg.Shares)
	if err != nil {
		return framework.Registration{}, err
	}
	key, err := dupAll(seg.Shares)
	if err != nil {
		return framework.Registration{}, err
	}
	data := fmt.Sprintf("%v+%d+%d", seg.Device, seg.Offset, seg.Bytes)
	return framework.Registration{ID: t.add(held), Key: framework.Parcel{Data: []byte(data), Shares: key}}, nil
}

// Listen returns a blob and the configuration as text.
func (t *Transport) Listen(_ context.Context, cfg framework.EndpointConfig) (framework.Endpoint, error) {
	if t.cfg.Crash != "" {
		panic(t.cfg.Crash)
	}
	if cfg.Kind == framework.KindPort {
		return framework.Endpoint{}, fmt.Errorf("%w: port channels", framework.ErrUnsupported)
	}
	t.mu.Lock()
	t.Seen = append(t.Seen, cfg)
	t.mu.Unlock()
	return framework.Endpoint{
		ID:      t.add(nil),
		Address: framework.Parcel{Data: []byte(fmt.Sprintf("%+v", cfg)), Shares: []framework.Share{{Kind: framework.ShareFabric, Blob: []byte("blob")}}},
		Create:  []framework.Object{{Kind: framework.ObjectMulticast, Bytes: 1 << 40, Ranks: len(cfg.Ranks)}},
		Reach:   []string{"host:" + cfg.Facts.Host},
	}, nil
}

// Connect blames the peer whose address is "bad".
func (t *Transport) Connect(ctx context.Context, _ framework.ID, peers []framework.Peer) (framework.ID, error) {
	for _, p := range peers {
		switch string(p.Address.Data) {
		case "bad":
			return 0, &framework.Error{
				Op: "connect", Transport: t.cfg.Name, Peer: p.Rank,
				Err: fmt.Errorf("%w: no such port", framework.ErrPeer),
			}
		case "wrapped":
			inner := &framework.Error{Op: "dial", Transport: "tcp", Peer: p.Rank, Err: framework.ErrPeer}
			return 0, fmt.Errorf("two attempts: %w", inner)
		case "plain":
			return 0, errors.New("an error without class")
		case "slow":
			<-ctx.Done()
			return 0, ctx.Err()
		}
	}
	return t.add(nil), nil
}

// Attach maps what the keys hold, and binds the first share of each.
func (t *Transport) Attach(_ context.Context, conn, local framework.ID, keys []framework.Parcel) (framework.Attachment, error) {
	a := framework.Attachment{ID: t.add(nil)}
	for i, k := range keys {
		shares, err := dupAll(k.Shares)
		if err != nil {
			return framework.Attachment{}, errors.Join(err, a.Close())
		}
		a.Mappings = append(a.Mappings, framework.Mapping{
			Role: framework.RolePeer, Peer: i, Shares: shares, Offset: uint64(conn), Bytes: uint64(local),
		})
		step := framework.Step{Op: framework.StepBind, Mapping: i, Object: 1, Slot: 2, Offset: 3, Bytes: 4}
		if len(k.Shares) > 0 {
			s, err := dup(k.Shares[0])
			if err != nil {
				return framework.Attachment{}, errors.Join(err, a.Close())
			}
			step.Share = &s
		}
		a.Steps = append(a.Steps, step, framework.Step{Op: framework.StepBarrier})
	}
	return a, nil
}

// Close implements framework.Transport.
func (t *Transport) Close(_ context.Context, id framework.ID) error {
	t.mu.Lock()
	shares := t.held[id]
	delete(t.held, id)
	t.mu.Unlock()
	return framework.Parcel{Shares: shares}.Close()
}

// Held counts the ids that were not closed.
func (t *Transport) Held() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.held)
}
