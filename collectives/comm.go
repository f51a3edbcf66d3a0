package collectives

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"sync"

	"github.com/mscclpp-go/mscclpp/collectives/internal/choose"
	"github.com/mscclpp-go/mscclpp/collectives/internal/engine"
	"github.com/mscclpp-go/mscclpp/collectives/internal/intra"
	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/comm"
)

// Options configures a Comm. The zero value of a field is its default. All ranks pass
// the same options; otherwise New fails on all of them, and the error says what
// differs. Each rank has its own Links. Of Sharing, and on GPUs of NoLines, ranks may
// pass different values: the largest number counts, and one rank's NoLines is enough.
type Options struct {
	Scratch   uint64 // bytes of scratch memory of each rank; default 32 MiB, on a GPU 256 MiB
	MaxBlocks int    // the most blocks of one kernel; default: what the device suggests
	Sharing   int    // ranks whose kernels run on one GPU, if more than the ranks can detect; default 1

	CopyScratch uint64     // bytes of scratch memory on a GPU for copies in pieces, allocated by the first; default 1 GiB
	NoCopies    bool       // do not use copy engines
	NoLines     bool       // for GPUs whose links (PCIe) do not keep stores of 128 bytes whole
	Signatures  Signatures // default SignaturesStall
	Table       []Row      // comes before the built-in table; see RowError
	Links       Links      // of this rank
}

const (
	// HostScratch is the default of Options.Scratch on the host.
	HostScratch = 32 << 20

	deviceScratch      = 256 << 20
	defaultCopyScratch = 1 << 30
)

// Comm performs collectives on one communicator: it describes calls, chooses their algorithms, and has engines perform
// them. Methods may be called from any goroutine; calls are carried out one at a time.
type Comm struct {
	comm    *comm.Communicator
	opts    Options
	host    bool
	shared  bool
	basis   string // what algorithms are chosen by, in words
	engines []engine.Engine
	program *program // one of them

	mu       sync.Mutex
	closed   bool
	progress progress // which Close ends before it locks
	refused  error    // why no collective can be had at all
	choice   choice
	calls    calls
	group    group
	undump   func() // takes Dump out of those of the communicator
}

// New prepares collectives on a communicator. It is collective: it allocates scratch
// memory and makes it accessible to all ranks. Ranks on the host that do not all share
// memory communicate through port channels. If that is not possible either, New
// succeeds, and every call fails with ErrUnsupported: the program can go on without
// collectives.
func New(ctx context.Context, c *comm.Communicator, o Options) (*Comm, error) {
	onHost := c.Device().Info().Device == framework.Host
	if o.Scratch == 0 {
		o.Scratch = HostScratch
		if !onHost {
			o.Scratch = deviceScratch
		}
	}
	if o.CopyScratch == 0 {
		o.CopyScratch = defaultCopyScratch
	}
	switch o.Signatures {
	case "":
		o.Signatures = SignaturesStall
	case SignaturesNever, SignaturesStall, SignaturesAlways:
	default:
		return nil, fmt.Errorf("%w: collectives: signatures %q: expected never, stall or always", framework.ErrInvalid, o.Signatures)
	}
	x := &Comm{comm: c, opts: o, host: onHost, program: &program{}}
	x.calls.chosen = x.chosen
	x.choice.tables = choose.Tables{Program: o.Table, NoKernel: func(what, kind string) error { return noKernel(c, what, kind) }}
	if err := agreeSettings(ctx, c, &x.opts); err != nil {
		return nil, err
	}
	if err := choose.CheckRows(o.Table, c.Kernels(), nil); err != nil {
		return nil, fmt.Errorf("collectives: %w", err)
	}
	reach, err := together(ctx, c)
	if err != nil {
		return nil, fmt.Errorf("collectives: %w", err)
	}
	var route choose.Route
	if !onHost { // of ranks of several hosts, for those of one host, who see only each other
		if route, err = lookAround(ctx, c, &x.opts); err != nil {
			return nil, err
		}
	}
	if err := x.assemble(ctx, reach, route); err != nil {
		return nil, fmt.Errorf("collectives: %w", err)
	}
	x.choice.refresh(x.engines)
	if x.basis = x.choice.basis; x.basis != "" {
		c.Log().Info("algorithms are chosen", "by", x.basis, "rows that come before", len(o.Table))
	}
	x.logIdle()
	x.undump = c.OnDump(x.Dump)
	return x, nil
}

// assemble makes the engines for ranks that do, or do not, all share memory.
func (c *Comm) assemble(ctx context.Context, reach comm.Reach, route choose.Route) error {
	if reach.Apart != nil {
		e, err := c.overHosts(reach.Apart, reach.Groups)
		if c.refused = err; err == nil {
			c.engines = append(c.engines, e, c.program)
		}
		return nil
	}
	c.shared = true
	o := &c.opts
	e, err := intra.New(ctx, c.comm, intra.Options{
		Scratch: o.Scratch, CopyScratch: o.CopyScratch, MaxBlocks: o.MaxBlocks, Sharing: o.Sharing,
		NoCopies: o.NoCopies, NoLines: o.NoLines, Signatures: o.Signatures, Route: route,
	})
	if err != nil {
		return err
	}
	c.engines = append(c.engines, e)
	if lacking := withoutKernels(c.comm); len(lacking) > 0 {
		if e, err := c.overHosts(errNoKernels, nil, lacking...); err == nil { // else calls say which kernel is missing
			c.engines = append(c.engines, e)
		}
	}
	c.engines = append(c.engines, c.program)
	return nil
}

// unique is a device that knows what tells it from all others, and placed one that knows
// where it is and what it can do: those of package cuda.
type (
	unique interface{ UUID() [16]byte }
	placed interface {
		PCI() string
		Capability() (major, minor int)
	}
)

// lookAround finds out whether ranks share a GPU, and whether one of them must not get
// lines, and how their GPUs are joined. The options are the same on all ranks afterwards.
// Collective, on GPUs.
func lookAround(ctx context.Context, c *comm.Communicator, o *Options) (route choose.Route, err error) {
	mine := choose.Surroundings{Sharing: o.Sharing, NoLines: o.NoLines, Name: c.Device().Info().Name, Links: o.Links}
	if d, ok := c.Device().(placed); ok {
		mine.Address = d.PCI()
		mine.Major, mine.Minor = d.Capability()
	}
	if d, ok := c.Device().(unique); ok {
		if id := d.UUID(); id != [16]byte{} {
			mine.Device = hex.EncodeToString(id[:])
		}
	}
	text, err := json.Marshal(mine)
	if err != nil {
		return route, fmt.Errorf("collectives: %w", err)
	}
	all, err := c.AllGather(ctx, text)
	if err != nil {
		return route, fmt.Errorf("collectives: %w", err)
	}
	list, err := choose.Heard(all)
	if err != nil {
		return route, err
	}
	o.Sharing, o.NoLines = choose.InCommon(list)
	return choose.Joined(list, o.NoLines), nil
}

// logIdle says in the log which rows of the table have no effect, and why.
func (c *Comm) logIdle() {
	absent, messages := choose.Idle(c.choice.tables.Program, c.choice.all())
	say := func(rows []string, why string) {
		if len(rows) > 0 {
			c.comm.Log().Info("rows of "+choose.TableKey+" are passed over", "rows", strings.Join(rows, ", "), "because", why)
		}
	}
	say(absent, "no transport of this job offers their algorithms")
	say(messages, "messages do not go by the table")
}

// Rank returns this rank's number in the communicator.
func (c *Comm) Rank() int { return c.comm.Rank() }

// Size returns the number of ranks.
func (c *Comm) Size() int { return c.comm.Size() }

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
// communicator: the other ranks are told. Otherwise Close is local. On a GPU the caller waits first for what calls
// have enqueued; what is still on a stream of package device after two seconds ends in the same way. Closing twice is
// not an error.
func (c *Comm) Close() error {
	first, busy := c.progress.close()
	if !first {
		c.mu.Lock() // until the first has ended
		defer c.mu.Unlock()
		return nil
	}
	if busy {
		engine.Interrupt(c.comm, "a call was in progress")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	if c.undump != nil {
		c.undump()
	}
	var failed error
	for _, e := range c.engines {
		if err := e.Close(); failed == nil {
			failed = err
		}
	}
	return failed
}
