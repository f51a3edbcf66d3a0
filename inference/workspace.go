package inference

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/comm"
	"github.com/mscclpp-go/mscclpp/framework/device"
	"github.com/mscclpp-go/mscclpp/internal/ownkernel"
)

// Options of a workspace. All ranks pass the same.
type Options struct {
	// Scratch is how many bytes of memory each rank opens to the others; 0: 64 MiB on GPUs, 8 MiB on the host. A call whose
	// rows do not fit is carried out by several launches.
	Scratch uint64
}

// The default sizes, and the least that is worth having.
const (
	scratchGPU   = 64 << 20
	scratchHost  = 8 << 20
	scratchLeast = 64 << 10
)

// Workspace is what operators need on a communicator: kernels, and memory that the ranks have opened to each other. Calls
// are carried out one at a time, in the same order on all ranks. It ends with the communicator.
type Workspace struct {
	comm   *comm.Communicator
	code   ownkernel.Kernel
	host   bool
	number uint32 // in reports of waits

	clusters bool // the kernel was built for them
	unlist   func()

	running atomic.Bool

	mu       sync.Mutex
	memory   *comm.Memory
	shared   *comm.Symmetric
	private  device.Memory
	args     normArgs
	stream   device.Stream // of the last call
	enqueued bool
	mark     device.Mark
	closed   bool
}

// New makes a workspace. It is collective. ErrUnavailable: not all ranks reach each other's memory, or there are no kernels for
// the device.
func New(ctx context.Context, c *comm.Communicator, o Options) (*Workspace, error) {
	w := &Workspace{comm: c, host: c.Device().Info().Device == framework.Host, number: waitMark | waitNumber.Add(1)&waitMask}
	if o.Scratch == 0 {
		o.Scratch = scratchGPU
		if w.host {
			o.Scratch = scratchHost
		}
	}
	w.code = kernelOfNorms()
	w.code.Opened = func(_ device.Info, i framework.ImageInfo) { w.clusters = hasClusters(i.Arch) }
	mistake := w.code.Find(c)
	if o.Scratch < scratchLeast {
		mistake = fmt.Errorf("%w: workspace: %d bytes of scratch memory: expected %d or more", framework.ErrInvalid, o.Scratch, scratchLeast)
	}
	if err := w.agree(ctx, o.Scratch, mistake); err != nil {
		return nil, err
	}
	if err := w.reach(ctx); err != nil {
		return nil, err
	}
	if err := w.open(ctx, o.Scratch/512*256); err != nil {
		return nil, errors.Join(fmt.Errorf("workspace: %w", err), w.release())
	}
	w.list()
	return w, nil
}

// agree compares the options of all ranks.
func (w *Workspace) agree(ctx context.Context, scratch uint64, mistake error) error {
	mine := binary.LittleEndian.AppendUint64(nil, scratch)
	if mistake != nil {
		mine = []byte(mistake.Error())
	}
	all, err := w.comm.AllGather(ctx, mine)
	if err != nil || mistake != nil {
		return errors.Join(mistake, err)
	}
	for r, theirs := range all {
		if bytes.Equal(theirs, mine) {
			continue
		}
		text := string(theirs)
		if len(theirs) == 8 {
			text = fmt.Sprintf("it has %d bytes of scratch memory, and rank %d has %d", binary.LittleEndian.Uint64(theirs), w.comm.Rank(), scratch)
		}
		return &framework.Error{Op: "workspace", Peer: r, Err: fmt.Errorf("%w: %s", framework.ErrInvalid, text)}
	}
	return nil
}

// reach refuses ranks that do not share memory, before anything is set up.
func (w *Workspace) reach(ctx context.Context) error {
	if w.comm.Size() == 1 {
		return nil
	}
	found, err := w.comm.ReachAll(ctx)
	if err == nil && found.Apart != nil {
		err = fmt.Errorf("%w: workspace: expected that all ranks reach each other's memory: %w", framework.ErrUnavailable, found.Apart)
	}
	return err
}

// open makes the memory: notices, and two halves in which every word is the sentinel.
func (w *Workspace) open(ctx context.Context, half uint64) (err error) {
	n, d := w.comm.Size(), w.comm.Device()
	notices := (uint64(2*n*noticeBytes) + 255) / 256 * 256
	if w.memory, err = w.comm.Alloc(notices + 2*half); err != nil {
		return err
	}
	if err := fill(d, w.memory.Addr()+uintptr(notices), 2*half); err != nil {
		return err
	}
	peers := make([]byte, 8*n)
	binary.LittleEndian.PutUint64(peers, uint64(w.memory.Addr()))
	if n > 1 {
		if w.shared, err = w.comm.Exchange(ctx, w.memory); err != nil {
			return err
		}
		for r := range n {
			binary.LittleEndian.PutUint64(peers[8*r:], uint64(w.shared.Peer(r)))
		}
	}
	return w.keep(peers, notices, half)
}

// private memory of a rank: the states of calls with and without communication, the addresses of peers, and for calls without
// communication the one address of memory for their notice.
const (
	localState  = unsafe.Sizeof(normState{})
	localPeer   = 2 * localState
	localNotice = localPeer + 8
	peersFrom   = localNotice + 2*noticeBytes
)

func (w *Workspace) keep(peers []byte, notices, half uint64) (err error) {
	d := w.comm.Device()
	if w.private, err = d.Alloc(uint64(peersFrom) + uint64(len(peers))); err != nil {
		return err
	}
	base := w.private.Addr()
	own := binary.LittleEndian.AppendUint64(nil, uint64(base+localNotice))
	if err := errors.Join(write(d, base+localPeer, own), write(d, base+peersFrom, peers)); err != nil {
		return err
	}
	w.args.Notices, w.args.Half, w.args.Kernel = notices, half, w.number
	return nil
}

// memoryOf is the memory that a call uses. One without communication is not counted among the others: other ranks may not make it.
func (w *Workspace) memoryOf(c *NormCall) normMemory {
	base := w.private.Addr()
	if c.Rows == Local {
		return normMemory{Control: w.comm.Control(), State: base + localState, Peers: base + localPeer}
	}
	return normMemory{Control: w.comm.Control(), State: base, Peers: base + peersFrom}
}

// fill writes the sentinel.
func fill(d device.Device, addr uintptr, size uint64) error {
	chunk := bytes.Repeat([]byte{0xff}, int(min(size, 1<<20)))
	for done := uint64(0); done < size; done += uint64(len(chunk)) {
		if err := write(d, addr+uintptr(done), chunk[:min(uint64(len(chunk)), size-done)]); err != nil {
			return err
		}
	}
	return nil
}

// write copies bytes to memory of a device.
func write(d device.Device, addr uintptr, data []byte) error {
	if w, ok := d.(interface {
		WriteAt(data []byte, addr uintptr) error
	}); ok {
		return w.WriteAt(data, addr)
	}
	copy(unsafe.Slice((*byte)(at(addr)), len(data)), data)
	return nil
}

// at turns an address outside of Go's heap into a pointer.
func at(addr uintptr) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&addr)) }

// Close releases what the workspace has. A call in progress, which waits for peers, ends with ErrClosed, and with it the
// communicator. Otherwise Close is local.
func (w *Workspace) Close() error {
	if w.running.Load() {
		w.comm.Abort(fmt.Errorf("%w: rank %d closed a workspace while a call of it ran", framework.ErrClosed, w.comm.Rank()))
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return nil
	}
	w.closed = true
	w.unlist()
	err := w.quiet()
	if w.mark != nil {
		err = errors.Join(err, w.mark.Close())
	}
	return errors.Join(err, w.release())
}

func (w *Workspace) release() error {
	var errs []error
	if w.shared != nil {
		errs = append(errs, w.shared.Close())
	}
	if w.private != nil {
		errs = append(errs, w.private.Close())
	}
	if w.memory != nil {
		errs = append(errs, w.memory.Close())
	}
	return errors.Join(append(errs, w.code.Close())...)
}
