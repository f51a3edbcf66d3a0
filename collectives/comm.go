package collectives

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"github.com/mscclpp-go/mscclpp/collectives/internal/kernelargs"
	"slices"
	"sync"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/comm"
	"github.com/mscclpp-go/mscclpp/framework/device"
)

// Signatures says when ranks compare the arguments of their calls.
type Signatures string

// Values of Options.Signatures.
const (
	SignaturesNever  Signatures = "never"
	SignaturesStall  Signatures = "stall"  // after a call on the host, and when a call takes unusually long
	SignaturesAlways Signatures = "always" // before any data moves
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

	deviceScratch = 256 << 20
	windowBytes   = 4 << 20 // of the switch algorithm
)

// Comm performs collectives on one communicator. Methods may be called from any
// goroutine; they are carried out one at a time.
type Comm struct {
	comm *comm.Communicator
	opts Options
	host bool

	progress   progress // which Close ends before it locks
	mu         sync.Mutex
	closed     bool
	refused    error // why no collective can be had at all
	geometry   kernelargs.Geometry
	scratch    *comm.Memory
	symmetric  *comm.Symmetric
	state      device.Memory
	window     *comm.SwitchChannel
	windowMem  *comm.Memory
	algorithms [collectives][]*algorithm
	messages   *algorithm
	few        *algorithm // messages, for few of them; or nil
	chunks     *algorithm // messages, wherever there are kernels
	selector   Selector
	table      []Row
	builtin    []Row
	basis      string // what they are
	route      route  // between the ranks' GPUs
	choices    choices
	trial      trial // of pull and stages
	launch     device.Launch
	blocks     uint32 // most of one launch
	residents  residents
	order      order
	notes      *notes // nil on the host
	copier     *copier
	ports      *ports // nil where all ranks share memory
	decided    bool   // whether kernels of ports exchange between hosts

	// The arguments of the next launch. They are part of the Comm so that a call
	// allocates nothing; input and output also keep the caller's buffers from
	// moving while the kernel runs.
	request       Request
	args          kernelargs.Args
	near          [2]kernelargs.LLArgs // for packets, for lines
	groupArgs     *kernelargs.TransferArgs
	fewArgs       kernelargs.LLTransferArgs
	input, output unsafe.Pointer
	inSym, outSym *comm.Symmetric // which memory args.Inputs and Outputs describe
	inID, outID   uint64          // of the call's buffers; 0: not registered

	group  group
	lists  messageLists // of groups that are longer than the arguments of a launch
	watch  *watch
	undump func() // takes Dump out of those of the communicator
}

// agreement is what has to be the same on all ranks of what follows from settings, which
// are, and from transports and devices.
type agreement struct {
	Geometry kernelargs.Geometry
	Basis    string
	Rows     string // a sum of the built-in ones: a model may make others of other kernels
	Blocks   uint32
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
	x := &Comm{comm: c, opts: o, host: onHost, table: o.Table, groupArgs: new(kernelargs.TransferArgs)}
	if err := x.agreeSettings(ctx); err != nil {
		return nil, err
	}
	if err := x.checkRows(o.Table); err != nil {
		return nil, fmt.Errorf("collectives: %w", err)
	}
	reach, err := together(ctx, c)
	if err != nil {
		return nil, fmt.Errorf("collectives: %w", err)
	}
	if apart := reach.Apart; apart != nil {
		if !x.host { // for the ranks of one host, who see only each other
			if err := x.lookAround(ctx); err != nil {
				return nil, err
			}
		}
		x.offerPorts(apart, reach.Groups)
		x.tellIdle()
		return x, nil
	}
	if c.Size() > kernelargs.MaxRanks {
		return nil, fmt.Errorf("%w: collectives: %d ranks share memory: expected at most %d", framework.ErrUnsupported, c.Size(), kernelargs.MaxRanks)
	}
	found := discover(c.Kernels(), c.Size())
	x.algorithms = found.algorithms
	lanes := uint32(1)
	x.builtin, x.basis, x.launch, x.blocks = hostTable, "rows measured on CPUs", device.Launch{Grid: 1, Block: 1}, 1
	if !x.host {
		if err := x.lookAround(ctx); err != nil {
			return nil, err
		}
		x.blocks = x.mostBlocks()
		lanes = min(deviceLanes, x.blocks)
		x.launch = device.Launch{Grid: lanes, Block: deviceThreads}
		x.residents.most = x.mostResidents()
		x.offerCopies(found.steps)
	}
	if x.opts.NoLines {
		x.withdrawLines()
	}
	if x.geometry, err = kernelargs.Divide(o.Scratch, c.Size(), lanes, !x.host); err != nil {
		return nil, fmt.Errorf("collectives: %w", err)
	}
	if !x.host {
		x.useBuiltin(x.route, c.Size())
		c.Log().Info("algorithms are chosen", "by", x.basis, "rows that come before", len(x.table))
	}
	x.offerMessages(found.messages, c.Size())
	x.nameWaits()
	if err := x.agree(ctx); err != nil {
		return nil, err
	}
	if err := x.allocate(ctx); err != nil {
		x.Close()
		return nil, fmt.Errorf("collectives: %w", err)
	}
	x.tellIdle()
	if x.watched() {
		x.watch = startWatch(x)
	}
	x.undump = c.OnDump(x.Dump)
	return x, nil
}

// watched reports whether somebody has to look at calls that are under way: to compare
// them, and on GPUs for copies that cannot go where they should.
func (c *Comm) watched() bool {
	if c.host {
		return c.opts.Signatures != SignaturesNever
	}
	return c.notes.engine != nil && (c.opts.Signatures == SignaturesStall || c.copier != nil)
}

// mostBlocks is how many blocks of one launch are resident at once, whatever else the
// ranks that share the device have launched.
func (c *Comm) mostBlocks() uint32 {
	most := uint32(kernelargs.MaxLanes)
	if n := c.comm.Device().Info().SMs; n > 0 {
		share := uint32(max(1, n/max(1, c.opts.Sharing)))
		most = min(most, share-spare(share))
	}
	if c.opts.MaxBlocks > 0 {
		most = min(most, uint32(c.opts.MaxBlocks))
	}
	return most
}

// mostResidents is how many blocks of launches may be waiting: those of two launches, if there is as much
// room, and none where ranks share the device. Who caps launches at more than half of the device wants the
// rest of it.
func (c *Comm) mostResidents() uint32 {
	n, capped := uint32(c.comm.Device().Info().SMs), uint32(c.opts.MaxBlocks)
	switch {
	case c.opts.Sharing > 1:
		return 0
	case n == 0:
		return 2 * c.blocks
	case capped > n/2:
		return min(capped, n-spare(n))
	}
	return min(2*c.blocks, n-spare(n))
}

// withdrawLines takes the algorithms out that send lines.
func (c *Comm) withdrawLines() {
	for k, list := range c.algorithms {
		c.algorithms[k] = slices.DeleteFunc(list, func(a *algorithm) bool { return a.isNear && a.near.lines })
	}
}

// agree compares with the other ranks what has to be the same.
func (c *Comm) agree(ctx context.Context) error {
	rows, err := json.Marshal(c.builtin)
	if err != nil {
		return fmt.Errorf("collectives: %w", err)
	}
	sum := fmt.Sprintf("%x", sha256.Sum256(rows))
	mine, err := json.Marshal(agreement{c.geometry, c.basis, sum, c.blocks})
	if err != nil {
		return fmt.Errorf("collectives: %w", err)
	}
	all, err := c.comm.AllGather(ctx, mine)
	if err != nil {
		return fmt.Errorf("collectives: %w", err)
	}
	for r, theirs := range all {
		if string(theirs) != string(mine) {
			return fmt.Errorf("collectives: %w", &framework.Error{Op: "compare options", Peer: r,
				Err: fmt.Errorf("%w: options %s, expected as here %s", framework.ErrInvalid, theirs, mine)})
		}
	}
	return nil
}

func (c *Comm) allocate(ctx context.Context) error {
	var err error
	if c.scratch, err = c.comm.Alloc(c.geometry.Total); err != nil {
		return fmt.Errorf("scratch: %w", err)
	}
	if c.state, err = c.comm.Device().Alloc(kernelargs.StateBytes + kernelargs.PullBytes); err != nil {
		return fmt.Errorf("state: %w", err)
	}
	if c.symmetric, err = c.comm.Exchange(ctx, c.scratch); err != nil {
		return fmt.Errorf("scratch: %w", err)
	}
	k := &c.args.Common
	k.Control, k.State = c.comm.Control(), c.state.Addr()
	k.Notes = k.State
	if !c.host {
		if c.notes, err = openNotes(c.comm.Device(), c.comm.Size()); err != nil {
			return err
		}
		k.Notes = c.notes.device
	}
	k.Rank, k.Ranks = uint32(c.comm.Rank()), uint32(c.comm.Size())
	c.geometry.Fill(k)
	for r := range c.comm.Size() {
		k.Scratch[r] = c.symmetric.Peer(r)
	}
	switch c.opts.Signatures {
	case SignaturesStall:
		k.Check = kernelargs.CheckPublish
	case SignaturesAlways:
		k.Check = kernelargs.CheckCompare
	}
	c.fillMessages()
	c.fillNear()
	if !c.host {
		c.withdraw(pull)
		return nil
	}
	return c.meetProcesses(ctx)
}

// Rank returns this rank's number in the communicator.
func (c *Comm) Rank() int { return c.comm.Rank() }

// Size returns the number of ranks.
func (c *Comm) Size() int { return c.comm.Size() }

// Communicator returns the communicator that the Comm was made on.
func (c *Comm) Communicator() *comm.Communicator { return c.comm }

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
		c.interrupt("a call was in progress")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	c.watch.stop() // only now: it knows which calls cannot end
	if c.undump != nil {
		c.undump()
	}
	return c.release()
}

func (c *Comm) release() error {
	var first error
	keep := func(err error) {
		if err != nil && first == nil {
			first = err
		}
	}
	keep(c.drain(c.order.last, c.order.any))
	if c.ports != nil && c.ports.courier != nil {
		keep(c.drain(c.ports.courier.last, c.ports.courier.any))
	}
	keep(c.order.close())
	keep(c.copier.close(c.comm))
	keep(c.ports.close())
	if c.window != nil {
		keep(c.window.Close())
	}
	if c.windowMem != nil {
		keep(c.windowMem.Close())
	}
	for _, m := range c.lists {
		keep(m.Close())
	}
	if c.symmetric != nil {
		keep(c.symmetric.Close())
	}
	if c.state != nil {
		keep(c.state.Close())
	}
	keep(c.notes.close())
	if c.scratch != nil {
		keep(c.scratch.Close())
	}
	return first
}
