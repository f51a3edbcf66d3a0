package collectives

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/mscclpp-go/mscclpp/collectives/internal/engine"
	"github.com/mscclpp-go/mscclpp/collectives/internal/scaling"
	"github.com/mscclpp-go/mscclpp/framework/comm"
	"github.com/mscclpp-go/mscclpp/framework/device"
)

// Options configures a Comm. The zero value of a field is its default. All ranks pass
// the same options; otherwise New fails on all of them, and the error says what
// differs. Each rank has its own Links, Preload and AnyOverlap. Of Sharing, and on GPUs of NoLines, ranks may
// pass different values: the largest number counts, and one rank's NoLines is enough.
type Options struct {
	Scratch   uint64 // bytes of scratch memory of each rank; default 32 MiB, on a GPU 64 MiB for each rank of the communicator, at most 256 MiB
	MaxBlocks int    // the most blocks of one kernel; default: what the device suggests
	Sharing   int    // ranks whose kernels run on one GPU, if more than the ranks can detect; default 1

	CopyScratch uint64     // the most scratch memory on a GPU, in bytes, for copies in pieces, which allocate what they need; default 1 GiB
	NoCopies    bool       // do not use copy engines
	NoLines     bool       // for GPUs whose links (PCIe) do not keep stores of 128 bytes whole
	Signatures  Signatures // default SignaturesStall
	AnyOverlap  bool       // messages of a group may share buffers, which hold anything afterwards
	Table       []Row      // comes before the built-in table; see RowError
	Links       Links      // of this rank
	Preload     bool       // load what New finds machine code of and calls may need, beside the kernels that transports carry
}

// Defaults of Options.
const (
	HostScratch        = 32 << 20  // Scratch on the host
	DeviceScratch      = 256 << 20 // Scratch on a GPU with four ranks and more; two have half of it
	DefaultCopyScratch = 1 << 30   // CopyScratch
)

// Comm performs collectives on one communicator: it describes calls, chooses their algorithms, and has engines perform
// them. Methods may be called from any goroutine; calls are carried out one at a time.
type Comm struct {
	comm    *comm.Communicator
	rank    int
	ranks   int
	opts    Options
	host    bool
	shared  bool
	basis   string // the facts that algorithms are chosen by, in words
	engines []engine.Engine
	program *program // one of them

	progress progress
	closed   sync.Once
	refused  error       // why no collective can be had at all
	call     engine.Call // that is in progress: a call allocates none
	group    group
	scaler   *scaling.Scaler

	choice choice
	mu     sync.Mutex // between calls: Check asks engines, Close closes them, the program registers algorithms
	unlist func()     // takes Dump and Close out of those of the communicator
}

// Rank returns this rank's number in the communicator.
func (c *Comm) Rank() int { return c.rank }

// Size returns the number of ranks.
func (c *Comm) Size() int { return c.ranks }

// Communicator returns the communicator that the Comm was made on.
func (c *Comm) Communicator() *comm.Communicator { return c.comm }

// Shared reports whether all ranks share memory. If they do not, buffers cannot be
// registered by comm.Exchange.
func (c *Comm) Shared() bool { return c.shared }

// Dump writes how algorithms are chosen, and the last call that each rank is known to
// have begun: the ranks that are behind are the ones that the others wait for. It may
// be called at any time before Close, also while a call is in progress. A dump of the
// communicator includes this one.
func (c *Comm) Dump(w io.Writer) {
	if c.basis != "" {
		fmt.Fprintf(w, "  collectives: unless the configuration has a row algorithms are chosen by %s\n", c.basis)
	}
	for _, e := range c.engines {
		if d, ok := e.(engine.Dumper); ok {
			d.Dump(w)
		}
	}
}

// Close releases what New allocated. Calls in progress, which wait for peers, end with ErrClosed, and with them the
// communicator: the other ranks get the error. Otherwise Close is local. On a GPU the caller waits first for what calls
// have enqueued; what is still on a stream of package device after two seconds ends in the same way. Closing twice is
// not an error.
func (c *Comm) Close() (err error) {
	if c.progress.close() {
		engine.Interrupt(c.comm, "a call was in progress")
	}
	c.closed.Do(func() { err = c.shut() })
	return err
}

// shut is Close, once no call can begin any more, and a call that is in progress ends.
func (c *Comm) shut() error {
	c.progress.turn.Lock()
	defer c.progress.turn.Unlock()
	c.progress.board.Close()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.unlist != nil {
		c.unlist()
	}
	var failed error
	for _, e := range c.engines {
		if err := e.Close(); failed == nil {
			failed = err
		}
	}
	return errors.Join(failed, c.scaler.Close())
}

// Settle waits until what calls of a Comm have enqueued has ended, by events of its own. ErrUnsupported: that is not known.
func Settle(ctx context.Context, c *Comm) error { return engine.Settle(ctx, c.engines) }

// settle has engines find out what has to be known before an algorithm is chosen.
func (c *Comm) settle(k Collective, s device.Stream) error {
	for _, e := range c.engines {
		if e == engine.Engine(c.program) {
			continue // functions of the program have nothing to settle
		}
		changed, err := e.Settle(k, s)
		if err != nil {
			return err
		}
		if changed {
			c.choice.refresh(c.engines)
		}
	}
	return nil
}

// check says why no call can be made any more, or nil.
func (c *Comm) check() error {
	if c.progress.closing.Load() {
		return errClosed()
	}
	if c.refused != nil {
		return c.refused
	}
	return c.comm.Check()
}
