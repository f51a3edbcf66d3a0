package intra

import (
	"errors"
	"fmt"
	"time"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/collectives/internal/choose"
	"github.com/mscclpp-go/mscclpp/collectives/internal/engine"
	"github.com/mscclpp-go/mscclpp/collectives/internal/kernelargs"
	"github.com/mscclpp-go/mscclpp/framework/collective"
	"github.com/mscclpp-go/mscclpp/framework/comm"
	"github.com/mscclpp-go/mscclpp/internal/fastpath"
)

// planned publishes calls, so that callers in C can repeat them without Go: those by kernels with short arguments, on
// the one stream that all calls are on so far, of buffers in ordinary memory. The lists of what a call looks at here and
// there have to be the same:
//
//	Go, for each call                           C, or why it need not
//	the communicator was closed, or has failed  the owner of the table; the abort word, and the report of a wait
//	arguments                                   the key; buffers that are not NULL, in place or apart
//	notes of kernels                            the same words
//	buffers in exchanged memory                 addresses outside of it; OnExchange ends the epoch
//	selector, tables, offers                    there is none, or a change ends the epoch
//	sequence, blocks that may be waiting        the table has them, and Go takes them back
//	observers                                   the table counts calls for them; while they want records Go makes all
//	order of streams                            the stream is part of the key, and its number compared; on several, nothing is published
//	processors of the stream                    the table has what they allow; it is given away for the one stream alone
//	whether the last call is marked             the table counts calls, and Pending compares the number with that of its mark
type planned struct {
	table *fastpath.Table // nil: the C library makes no calls
	entry fastpath.Entry

	exchanged []fastpath.Range
	identify  uintptr     // the C function that tells streams of a handle apart
	over      func() bool // whether the communicator has failed
}

// direct is a kernel that is launched by a C function.
type direct interface {
	Direct() (launch, context, function uintptr, overlap bool)
}

// open makes the table.
func (p *planned) open(c *comm.Communicator, e *Engine) {
	if e.host || e.board.notes == nil {
		return
	}
	var a kernelargs.LLArgs
	w := c.ControlWords()
	l := &fastpath.Layout{
		Input: unsafe.Offsetof(a.Input), Output: unsafe.Offsetof(a.Output), Release: unsafe.Offsetof(a.Release),
		Sequence: unsafe.Offsetof(a.Signature) + unsafe.Offsetof(a.Signature.Sequence),
		Words:    [4]*uint32{&w.Abort, &w.Reported, e.board.note(kernelargs.MismatchOffset), e.board.note(kernelargs.ElsewhereOffset)},
	}
	rules(l, &e.residents)
	if e.args.Check != kernelargs.CheckNever {
		l.Step = 1
	}
	p.table = fastpath.New(c, l)
	p.over = func() bool { return c.Err() != nil }
	if k, ok := c.Device().(interface{ StreamIDDirect() uintptr }); ok {
		p.identify = k.StreamIDDirect()
	}
	if p.table != nil {
		c.OnExchange(p.table.Invalidate)
	}
}

// rules are those of residents.
func rules(l *fastpath.Layout, r *residents) {
	l.AtOnce, l.Sent, l.Met = uint32(kernelargs.ReleaseAtOnce), uint32(kernelargs.ReleaseSent), uint32(kernelargs.ReleaseMet)
	l.Most, l.Early = r.most, choose.EarlyThreads
}

// take has only Go make calls until give. It fails if the communicator has, and a launch from C does not return all the same.
func (e *Engine) take() error {
	t := e.planned.table
	if t == nil {
		return nil
	}
	s, ok := t.Take(e.planned.over)
	if !ok {
		return fmt.Errorf("%w: %w", errLaunch, e.comm.Err())
	}
	e.args.Signature.Sequence, e.residents.waiting = s.Sequence, s.Waiting
	return nil
}

// give ends that. A call that was performed may be repeated; nil: none was.
func (e *Engine) give(c *engine.Call, performed bool) {
	p := &e.planned
	if p.table == nil {
		return
	}
	if performed && c != nil && e.repeatable(c) && p.table.Exchanged(e.exchanged()) {
		p.table.Publish(&p.entry)
	}
	p.table.Give(fastpath.Shared{Sequence: e.args.Signature.Sequence, Waiting: e.residents.waiting, Most: e.residents.most}, performed && e.order.One(e.residents.stream))
}

// exchanged lists the exchanged memory. It does not allocate once it had as much.
func (e *Engine) exchanged() []fastpath.Range {
	list := e.planned.exchanged[:0]
	for i := 0; ; i++ {
		m, ok := e.comm.Exchanged(i)
		if !ok {
			e.planned.exchanged = list
			return list
		}
		list = append(list, fastpath.Range{From: m.Addr(), To: m.Addr() + uintptr(m.Bytes())})
	}
}

// repeatable fills the entry of a call that was just performed, if calls like it can do without Go.
func (e *Engine) repeatable(c *engine.Call) bool {
	alg := e.byKey[c.Algorithm.Key]
	k, ok := alg.For(c.Type).(direct)
	p := alg.traits.Protocol
	if !c.Repeats || !alg.traits.LL || !ok || c.Count == 0 || c.Multiplied || c.Scale != 0 || c.Launch.Shared != 0 ||
		c.In.Memory != nil || c.Out.Memory != nil || c.Input == nil || c.Output == nil ||
		p.Pieces && c.Count > choose.LaunchPart/uint64(c.Type.Size()) {
		return false
	}
	id, ok := e.order.Only(c.Stream)
	if !ok {
		return false
	}
	x, a := &e.planned.entry, &e.ll.args[p.Area]
	var overlap bool
	x.Launch, x.Context, x.Function, overlap = k.Direct()
	x.Overlap = overlap && c.Launch.Overlap
	x.Key = fastpath.Key{Count: c.Count, Stream: uintptr(c.Stream), Kind: uint32(c.Collective), Type: uint32(c.Type), Op: uint32(c.Op), Root: uint32(c.Root)}
	x.StreamID, x.Identify = id, e.planned.identify
	x.Grid, x.Block, x.InPlace = c.Launch.Grid, c.Launch.Block, c.InPlace
	x.InBytes, x.OutBytes, x.Between = extents(c, uint64(e.args.Rank))
	x.Arguments = unsafe.Slice((*byte)(unsafe.Pointer(a)), unsafe.Sizeof(*a))
	return unsafe.Sizeof(*a) <= fastpath.MostArguments
}

// extents is how long the buffers are, and how far the input lies behind the output in place.
func extents(c *engine.Call, rank uint64) (in, out uint64, between int64) {
	bytes := c.Count * uint64(c.Type.Size())
	in, out = bytes, bytes
	switch all := bytes * uint64(c.Ranks); c.Collective {
	case collective.AllGather:
		return in, all, int64(rank * bytes)
	case collective.ReduceScatter:
		return all, out, -int64(rank * bytes)
	case collective.AllToAll:
		return all, all, 0
	}
	return in, out, 0
}

// launchPatience is how long a launch from C may take, once Close has begun.
const launchPatience = 100 * time.Millisecond

var errLaunch = errors.New("a launch from C has not returned: expected the driver to end it within seconds after the communicator has failed")

func (e *Engine) closePlanned() error {
	t := e.planned.table
	if t.Close(time.Now().Add(launchPatience)) {
		return nil
	}
	engine.Interrupt(e.comm, "a call was in progress")
	if !t.Left(time.Now().Add(fastpath.Patience)) {
		return fmt.Errorf("%w; the memory of its call is freed all the same", errLaunch)
	}
	return nil
}
