package comm_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/bootstrap"
	"github.com/mscclpp-go/mscclpp/framework/comm"
	"github.com/mscclpp-go/mscclpp/framework/device"
	"github.com/mscclpp-go/mscclpp/framework/device/devicetest"
	"github.com/mscclpp-go/mscclpp/framework/device/host"
	"github.com/mscclpp-go/mscclpp/framework/memfd"
	"github.com/mscclpp-go/mscclpp/framework/transporttest/loopback"
)

// posting is a transport that cannot raise semaphores: its proxy leaves counts in an
// inbox at the receiver, one for each port endpoint. Data it moves anywhere.
type posting struct {
	*loopback.Transport
	adjust func(m *framework.Mapping)

	mu    sync.Mutex
	own   map[framework.ID]*inbox           // by endpoint
	ends  map[framework.ID]framework.ID     // connection to endpoint
	peers map[framework.ID]framework.Parcel // by connection: key of the peer's inbox
}

type inbox struct {
	memory *memfd.Memory
	reg    framework.Registration
}

const inboxBytes = 4096 * 128

func newPosting() *posting {
	return &posting{
		Transport: loopback.New(), own: map[framework.ID]*inbox{}, ends: map[framework.ID]framework.ID{},
		peers: map[framework.ID]framework.Parcel{},
	}
}

func (p *posting) Describe(ctx context.Context) (framework.Description, error) {
	d, err := p.Transport.Describe(ctx)
	d.Signal = framework.SignalImmediate
	d.Channels = []framework.Kind{framework.KindPort}
	return d, err
}

func (p *posting) Register(ctx context.Context, seg framework.Segment) (framework.Registration, error) {
	seg.Device = framework.Host // it is behind a memfd, whosever it is
	return p.Transport.Register(ctx, seg)
}

func (p *posting) Listen(ctx context.Context, cfg framework.EndpointConfig) (framework.Endpoint, error) {
	end, err := p.Transport.Listen(ctx, cfg)
	if err != nil {
		return end, err
	}
	m, err := memfd.New("inbox", inboxBytes, memfd.Options{})
	if err != nil {
		return end, err
	}
	box := &inbox{memory: m}
	box.reg, err = p.Transport.Register(ctx, framework.Segment{
		Device: framework.Host, Shares: []framework.Share{{Kind: framework.ShareMemFD, FD: m.File()}}, Bytes: inboxBytes,
	})
	if err != nil {
		return end, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.own[end.ID] = box
	key, err := box.reg.Key.Dup()
	end.Address.Data = append(end.Address.Data, key.Data...)
	end.Address.Shares = key.Shares
	return end, err
}

func (p *posting) Connect(ctx context.Context, local framework.ID, peers []framework.Peer) (framework.ID, error) {
	a := peers[0].Address
	p.mu.Lock()
	defer p.mu.Unlock()
	n := len(a.Data) - len(p.own[local].reg.Key.Data)
	inner := framework.Peer{Rank: peers[0].Rank, Address: framework.Parcel{Data: a.Data[:n]}}
	id, err := p.Transport.Connect(ctx, local, []framework.Peer{inner})
	if err == nil {
		p.ends[id] = local
		p.peers[id], err = framework.Parcel{Data: a.Data[n:], Shares: a.Shares}.Dup()
	}
	return id, err
}

func (p *posting) Attach(ctx context.Context, conn, local framework.ID, keys []framework.Parcel) (framework.Attachment, error) {
	if local == 0 {
		return framework.Attachment{}, nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	box := p.own[p.ends[conn]]
	share, err := framework.Share{Kind: framework.ShareMemFD, FD: box.memory.File()}.Dup()
	m := framework.Mapping{Role: framework.RoleInbox, Peer: framework.NoPeer, Shares: []framework.Share{share}, Bytes: inboxBytes}
	if p.adjust != nil {
		p.adjust(&m)
	}
	return framework.Attachment{Mappings: []framework.Mapping{m}, Steps: []framework.Step{{Op: framework.StepMap}}}, err
}

func (p *posting) Close(ctx context.Context, id framework.ID) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	err := p.Transport.Close(ctx, id)
	if box := p.own[id]; box != nil {
		delete(p.own, id)
		err = errors.Join(err, p.Transport.Close(ctx, box.reg.ID), box.reg.Key.Close(), box.memory.Close())
	}
	if key, ok := p.peers[id]; ok {
		delete(p.peers, id)
		err = errors.Join(err, key.Close())
	}
	return err
}

func (p *posting) NewProxy(ctx context.Context) (framework.Proxy, error) {
	inner, err := p.Transport.NewProxy(ctx)
	return &postingProxy{inner, p}, err
}

type postingProxy struct {
	framework.Proxy
	t *posting
}

func (p *postingProxy) BindSemaphore(ctx context.Context, slot uint32, b framework.SemaphoreBinding) error {
	p.t.mu.Lock()
	b.Key = p.t.peers[b.Conn]
	p.t.mu.Unlock()
	return p.Proxy.BindSemaphore(ctx, slot, b)
}

// counted is a device on which a test can look at words.
type counted interface {
	device.Device
	Word(addr uintptr) *uint64
}

type hostWords struct{ *host.Device }

func (hostWords) Word(addr uintptr) *uint64 { return &words(addr)[0] }

// postingJob runs f as two ranks whose signals have to be forwarded: on the host, and
// on a device.
func postingJob(t *testing.T, adjust func(m *framework.Mapping), f func(ctx context.Context, c *comm.Communicator, dev counted) error) {
	for name, open := range map[string]func(rank int) (counted, error){
		"host": func(int) (counted, error) {
			d, err := host.Open()
			return hostWords{d}, err
		},
		"device": func(rank int) (counted, error) { return devicetest.Open(rank) },
	} {
		t.Run(name, func(t *testing.T) {
			newRig(2).each(t, func(ctx context.Context, boot *bootstrap.Local) error {
				dev, err := open(boot.Rank())
				if err != nil {
					return err
				}
				defer dev.Close()
				p := newPosting()
				p.adjust = adjust
				tr, err := comm.NewTransport(ctx, p, "embedded")
				if err != nil {
					return err
				}
				c, err := comm.New(ctx, boot, comm.Options{Device: dev, Transports: []*comm.Transport{tr}})
				if err != nil {
					return err
				}
				return errors.Join(f(ctx, c, dev), c.Close())
			})
		})
	}
}

// Signals that a transport cannot deliver reach the semaphore by the forwarder, also
// when its number and the word of the inbox were used before.
func TestSignalsAreForwarded(t *testing.T) {
	postingJob(t, nil, func(ctx context.Context, c *comm.Communicator, dev counted) error {
		m, err := c.Alloc(1 << 16)
		if err != nil {
			return err
		}
		for lap := range 6 {
			ch, err := c.PortChannel(ctx, 1-c.Rank(), m, m)
			if err != nil {
				return err
			}
			s := ch.Handle().Semaphore
			first := atomic.LoadUint64(dev.Word(s.Expected))
			for range 50 {
				for _, call := range []error{ch.PutWithSignal(1<<15, 0, 4096), ch.Wait(ctx)} {
					if call != nil {
						return fmt.Errorf("lap %d: %w", lap, call)
					}
				}
			}
			if err := errors.Join(ch.Signal(), ch.Flush(ctx)); err != nil { // one is left over
				return err
			}
			for end := time.Now().Add(10 * time.Second); atomic.LoadUint64(dev.Word(s.Inbound)) != first+51; time.Sleep(50 * time.Microsecond) {
				if time.Now().After(end) {
					return fmt.Errorf("lap %d: %d signals, expected %d", lap, atomic.LoadUint64(dev.Word(s.Inbound)), first+51)
				}
			}
			if s.ID > 1 {
				return fmt.Errorf("lap %d: semaphore %d though only one is in use", lap, s.ID)
			}
			if err := errors.Join(c.Barrier(ctx), ch.Close()); err != nil {
				return err
			}
		}
		return nil
	})
}

// An inbox that is too small is the transport's fault, and found before it is read.
func TestInboxThatIsTooSmall(t *testing.T) {
	for name, adjust := range map[string]func(m *framework.Mapping){
		"small":       func(m *framework.Mapping) { m.Bytes = 4096 },
		"not aligned": func(m *framework.Mapping) { m.Offset, m.Bytes = 4, inboxBytes-4 },
	} {
		t.Run(name, func(t *testing.T) {
			postingJob(t, adjust, func(ctx context.Context, c *comm.Communicator, _ counted) error {
				m, err := c.Alloc(4096)
				if err != nil {
					return err
				}
				_, err = c.PortChannel(ctx, 1-c.Rank(), m, m)
				if !errors.Is(err, framework.ErrPlugin) && !errors.Is(err, framework.ErrPeer) {
					return fmt.Errorf("%v: expected that the transport is blamed", err)
				}
				return nil
			})
		})
	}
}
