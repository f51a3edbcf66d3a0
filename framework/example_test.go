package framework_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"sync"
	"syscall"

	"github.com/mscclpp-go/mscclpp/framework"
)

// files is a complete transport: it carries bytes between ranks that can map the
// same file. It has memory channels alone, so it says in one step how to reach
// the peer, map what the key holds, and the rank does the rest.
type files struct {
	mu   sync.Mutex
	last framework.ID
	live map[framework.ID]bool // objects that were made and not yet closed
}

func (t *files) Describe(context.Context) (framework.Description, error) {
	return framework.Description{
		Name: "files", Version: "1.0.0", Signal: framework.SignalDirect,
		Channels: []framework.Kind{framework.KindMemory},
		Needs:    []framework.Need{framework.NeedMemFD},
	}, nil
}

// Register borrows the segment, so the key holds a duplicate of its descriptor.
func (t *files) Register(_ context.Context, seg framework.Segment) (framework.Registration, error) {
	if len(seg.Shares) == 0 || seg.Shares[0].Kind != framework.ShareMemFD {
		return framework.Registration{}, t.fail("register", framework.NoPeer, framework.ErrUnsupported, "memory without a descriptor")
	}
	share, err := seg.Shares[0].Dup()
	if err != nil {
		return framework.Registration{}, err
	}
	key := framework.Parcel{Data: fmt.Appendf(nil, "files %d %d", seg.Offset, seg.Bytes), Shares: []framework.Share{share}}
	return framework.Registration{ID: t.made(), Key: key}, nil
}

func (t *files) Listen(_ context.Context, cfg framework.EndpointConfig) (framework.Endpoint, error) {
	if cfg.Kind != framework.KindMemory {
		return framework.Endpoint{}, t.fail("listen", framework.NoPeer, framework.ErrUnsupported, "only memory channels")
	}
	return framework.Endpoint{ID: t.made(), Address: framework.Parcel{Data: []byte("files")}, Reach: []string{"host:" + cfg.Facts.Host}}, nil
}

func (t *files) Connect(_ context.Context, _ framework.ID, peers []framework.Peer) (framework.ID, error) {
	if len(peers) != 1 || string(peers[0].Address.Data) != "files" {
		return 0, t.fail("connect", framework.NoPeer, framework.ErrPeer, "not an address of this transport")
	}
	return t.made(), nil
}

// Attach answers with the recipe. The mapping's descriptor is again a duplicate:
// the key is borrowed, the answer is handed over.
func (t *files) Attach(_ context.Context, _, _ framework.ID, keys []framework.Parcel) (framework.Attachment, error) {
	m := framework.Mapping{Role: framework.RolePeer}
	if _, err := fmt.Sscanf(string(keys[0].Data), "files %d %d", &m.Offset, &m.Bytes); err != nil || len(keys[0].Shares) != 1 {
		return framework.Attachment{}, t.fail("attach", framework.NoPeer, framework.ErrPeer, "not a key of this transport")
	}
	var err error
	if m.Shares, err = framework.DupShares(keys[0].Shares); err != nil {
		return framework.Attachment{}, err
	}
	return framework.Attachment{Mappings: []framework.Mapping{m}, Steps: []framework.Step{{Op: framework.StepMap}}}, nil
}

func (t *files) Close(_ context.Context, id framework.ID) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.live, id)
	return nil
}

func (t *files) made() framework.ID {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.last++
	t.live[t.last] = true
	return t.last
}

func (t *files) fail(op string, peer int, class error, text string) error {
	return &framework.Error{Op: op, Transport: "files", Peer: peer, Err: fmt.Errorf("%s: %w", text, class)}
}

// Two ranks of one process reach each other's memory. The steps that comm does
// for a program are written out here: register, listen, exchange, connect, attach,
// perform the steps.
func ExampleTransport() {
	ctx := context.Background()
	var ranks [2]struct {
		transport *files
		memory    []byte
		reg       framework.Registration
		end       framework.Endpoint
	}
	for i := range ranks {
		r := &ranks[i]
		r.transport = &files{live: map[framework.ID]bool{}}
		f := unlinked(4096)
		r.memory = mmap(f, 0, 4096)
		share := framework.Share{Kind: framework.ShareMemFD, FD: f}
		r.reg = must(r.transport.Register(ctx, framework.Segment{Device: framework.Host, Shares: []framework.Share{share}, Bytes: 4096}))
		share.Close() // the transport duplicated what it keeps
		r.end = must(r.transport.Listen(ctx, framework.EndpointConfig{
			Kind: framework.KindMemory, Rank: i, Ranks: []int{0, 1}, Device: framework.Host,
		}))
	}

	// Here parcels would travel through the bootstrap. Both ends do the same; this
	// is rank 0, which is to reach the memory of rank 1.
	me, peer := &ranks[0], &ranks[1]
	conn := must(me.transport.Connect(ctx, me.end.ID, []framework.Peer{{Rank: 1, Address: peer.end.Address}}))
	recipe := must(me.transport.Attach(ctx, conn, me.reg.ID, []framework.Parcel{peer.reg.Key}))

	var window []byte
	for _, step := range recipe.Steps {
		if step.Op == framework.StepMap {
			m := recipe.Mappings[step.Mapping]
			window = mmap(m.Shares[0].FD, int64(m.Offset), int(m.Bytes))
		}
	}
	recipe.Close() // the mapping outlives its descriptor

	// From here on there is no transport in sight: a put is a store.
	copy(window[64:], "put by rank 0")
	fmt.Printf("rank 1 sees %q\n", peer.memory[64:77])

	_, err := peer.transport.Listen(ctx, framework.EndpointConfig{Kind: framework.KindPort, Rank: 1, Ranks: []int{0, 1}})
	fmt.Println(err)

	for i := range ranks {
		ranks[i].reg.Key.Close()
		ranks[i].transport.Close(ctx, ranks[i].end.ID)
		ranks[i].transport.Close(ctx, ranks[i].reg.ID)
	}
	// Output:
	// rank 1 sees "put by rank 0"
	// files listen: only memory channels: unsupported
}

// unlinked returns memory that others can map: a file without a name. A real rank
// takes its memory from framework/device.
func unlinked(bytes int64) *os.File {
	f := must(os.CreateTemp("", "segment"))
	os.Remove(f.Name())
	if err := f.Truncate(bytes); err != nil {
		log.Fatal(err)
	}
	return f
}

func mmap(f *os.File, offset int64, bytes int) []byte {
	return must(syscall.Mmap(int(f.Fd()), offset, bytes, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED))
}

func must[T any](v T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return v
}
