package collectives

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/mscclpp-go/mscclpp/collectives/internal/choose"
	"github.com/mscclpp-go/mscclpp/collectives/internal/coverage"
	"github.com/mscclpp-go/mscclpp/collectives/internal/intra"
	"github.com/mscclpp-go/mscclpp/collectives/internal/scaling"
	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/comm"
	"github.com/mscclpp-go/mscclpp/framework/device"
	"github.com/mscclpp-go/mscclpp/internal/fastpath"
)

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
			o.Scratch = deviceScratch(c.Size())
		}
	}
	if o.CopyScratch == 0 {
		o.CopyScratch = DefaultCopyScratch
	}
	switch o.Signatures {
	case "":
		o.Signatures = SignaturesStall
	case SignaturesNever, SignaturesStall, SignaturesAlways:
	default:
		return nil, fmt.Errorf("%w: collectives: signatures %q: expected never, stall or always", framework.ErrInvalid, o.Signatures)
	}
	x := &Comm{comm: c, rank: c.Rank(), ranks: c.Size(), opts: o, host: onHost, program: &program{}, scaler: scaling.For(c)}
	x.call.Chosen, x.call.Ranks, x.call.Device = x.choice.chosen, x.ranks, deviceName(onHost)
	x.choice.ranks, x.choice.device = x.call.Ranks, x.call.Device
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
	if !onHost { // of ranks of several hosts, for those of one host, which see only each other
		if route, err = lookAround(ctx, c, &x.opts); err != nil {
			return nil, err
		}
	}
	if err := x.assemble(ctx, reach, route); err != nil {
		return nil, fmt.Errorf("collectives: %w", err)
	}
	x.progress.board = c.Observer().Board(c.Name(), x.rank, x.ranks)
	x.choice.planned = fastpath.Of(c)
	x.choice.planned.Observe(fastpath.Board(x.progress.board.Words()))
	x.choice.refresh(x.engines)
	if x.basis = x.choice.basis; x.basis != "" {
		c.Log().Info("algorithms are chosen", "by", x.basis, "rows that come before", len(o.Table))
	}
	x.logIdle()
	undump, unhook := c.OnDump(x.Dump), c.OnClose(x.Close)
	x.unlist = func() { undump(); unhook() }
	if o.Preload {
		if err := x.scaler.Preload(); err != nil {
			return nil, fmt.Errorf("collectives: %w", errors.Join(err, x.Close()))
		}
	}
	return x, nil
}

// assemble makes the engines for ranks that do, or do not, all share memory.
func (c *Comm) assemble(ctx context.Context, reach comm.Reach, route choose.Route) error {
	if reach.Apart != nil {
		e, err := c.overHosts(reach.Apart, reach.Groups, coverage.Remainder{})
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
	if left := coverage.Left(c.comm); len(left.Kinds()) > 0 {
		if e, err := c.overHosts(errNoKernels, nil, left); err == nil { // else calls say which kernel is missing
			c.engines = append(c.engines, e)
		}
	}
	c.engines = append(c.engines, c.program)
	return nil
}

// unique is a device with a UUID, as those of package native.
// versioned is a device whose links follow from its generation where no list names them, as those of package cuda.
type (
	unique    interface{ UUID() [16]byte }
	versioned interface{ Capability() (major, minor int) }
)

// lookAround finds out whether ranks share a GPU, and whether one of them must not get
// lines, and how their GPUs are joined. The options are the same on all ranks afterwards.
// Collective, on GPUs.
func lookAround(ctx context.Context, c *comm.Communicator, o *Options) (route choose.Route, err error) {
	mine := choose.Surroundings{Sharing: o.Sharing, NoLines: o.NoLines, Name: c.Device().Info().Name, Links: o.Links}
	if d, ok := c.Device().(device.Linked); ok {
		mine.Address, _, _ = d.Links()
	}
	if d, ok := c.Device().(versioned); ok {
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
	absent, messages := choose.Idle(c.choice.tables.Program, c.choice.all(), c.choice.tables.Unplaced)
	report := func(rows []string, why string) {
		if len(rows) > 0 {
			c.comm.Log().Info("rows of "+choose.TableKey+" are passed over", "rows", strings.Join(rows, ", "), "because", why)
		}
	}
	report(absent, "no transport of this job offers their algorithms")
	report(messages, "messages do not go by the table")
	for _, u := range c.choice.tables.Unplaced {
		c.comm.Log().Debug("an algorithm is not offered", "collective", u.Collective, "algorithm", u.Name, "reason", u.Reason)
	}
}
