package inference

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/comm"
	"github.com/mscclpp-go/mscclpp/framework/device"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
	"github.com/mscclpp-go/mscclpp/internal/ownkernel"
	"github.com/mscclpp-go/mscclpp/internal/ownmemory"
	"github.com/mscclpp-go/mscclpp/internal/streamorder"
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

	clusters bool                            // the kernel was built for them
	rms      [kernel.DataTypes]device.Kernel // for frequent calls; nil: it is not loaded, or there is none
	unlist   func()

	running ownkernel.Launching

	mu       sync.Mutex
	memory   *ownmemory.Memory
	private  uintptr // the memory of this rank alone
	args     normArgs
	order    streamorder.Order // of calls on several streams
	enqueued bool
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
	if err := ownmemory.Reach(ctx, c, "workspace"); err != nil {
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

// open makes the memory: notices, and two halves in which every word is the sentinel.
func (w *Workspace) open(ctx context.Context, half uint64) (err error) {
	notices := (uint64(2*w.comm.Size()*noticeBytes) + 255) / 256 * 256
	if w.memory, err = ownmemory.New(w.comm, notices+2*half); err != nil {
		return err
	}
	if err := ownmemory.Fill(w.comm.Device(), w.memory.Addr()+uintptr(notices), 2*half); err != nil {
		return err
	}
	peers, err := w.memory.Exchange(ctx)
	if err != nil {
		return err
	}
	if w.private, err = w.memory.Keep(peersFrom, peers); err != nil {
		return err
	}
	own := binary.LittleEndian.AppendUint64(nil, uint64(w.private+localNotice))
	w.args.Notices, w.args.Half, w.args.Kernel = notices, half, w.number
	return ownmemory.Write(w.comm.Device(), w.private+localPeer, own)
}

// private memory of a rank: the states of calls with and without communication, the addresses of peers, and for calls without
// communication the one address of memory for their notice.
const (
	localState  = unsafe.Sizeof(normState{})
	localPeer   = 2 * localState
	localNotice = localPeer + 8
	peersFrom   = localNotice + 2*noticeBytes
)

// memoryOf is the memory that a call uses. One without communication is not counted among the others: other ranks may not make it.
func (w *Workspace) memoryOf(c *NormCall) normMemory {
	base := w.private
	if c.Rows == Local {
		return normMemory{Control: w.comm.Control(), State: base + localState, Peers: base + localPeer}
	}
	return normMemory{Control: w.comm.Control(), State: base, Peers: base + peersFrom}
}

// interrupt ends a call in progress.
func (w *Workspace) interrupt() error {
	err := fmt.Errorf("%w: rank %d closed a workspace while a call of it ran", framework.ErrClosed, w.comm.Rank())
	w.comm.Abort(err)
	return err
}

// Close releases what the workspace has. A call in progress, which waits for peers, ends with ErrClosed, and with it the
// communicator. Otherwise Close is local.
func (w *Workspace) Close() error {
	if w.running.Close() {
		_ = w.interrupt()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return nil
	}
	w.closed = true
	w.unlist()
	return errors.Join(w.quiet(), w.order.Close(), w.release())
}

// quiet waits until earlier launches, on a GPU, no longer use memory that is to be freed.
func (w *Workspace) quiet() error {
	if w.host || !w.enqueued {
		return nil
	}
	return w.order.Drain(w.comm.Device(), func() {
		w.comm.Abort(fmt.Errorf("%w: rank %d frees memory of a workspace while a call of it runs", framework.ErrClosed, w.comm.Rank()))
	})
}

func (w *Workspace) release() error { return errors.Join(w.memory.Close(), w.code.Close()) }
