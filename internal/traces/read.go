package traces

import (
	"fmt"
	"os"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/mscclpp-go/mscclpp/framework"
)

// fields calls f for each field of a message.
func fields(b []byte, f func(n protowire.Number, number uint64, data []byte) error) error {
	for len(b) > 0 {
		n, kind, used := protowire.ConsumeTag(b)
		if used < 0 {
			return protowire.ParseError(used)
		}
		b = b[used:]
		var number uint64
		var data []byte
		switch kind {
		case protowire.VarintType:
			number, used = protowire.ConsumeVarint(b)
		case protowire.Fixed64Type:
			number, used = protowire.ConsumeFixed64(b)
		case protowire.BytesType:
			data, used = protowire.ConsumeBytes(b)
		default:
			used = protowire.ConsumeFieldValue(n, kind, b)
		}
		if used < 0 {
			return protowire.ParseError(used)
		}
		b = b[used:]
		if err := f(n, number, data); err != nil {
			return err
		}
	}
	return nil
}

// ReadFile reads a trace that WritePerfetto has written.
func ReadFile(name string) (*Trace, error) {
	b, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	t, err := Read(b)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return t, nil
}

// Read is ReadFile for the content of a file.
func Read(b []byte) (*Trace, error) {
	r := reader{tracks: map[uint64]string{}, ranks: map[int]*Rank{}, open: map[uint64][]slice{}}
	err := fields(b, func(n protowire.Number, _ uint64, packet []byte) error {
		if n != fieldPacket || packet == nil {
			return fmt.Errorf("%w: a field %d outside of packets", framework.ErrInvalid, n)
		}
		return r.packet(packet)
	})
	if err != nil {
		return nil, fmt.Errorf("%w: expected a trace of mscclpp-run: %w", framework.ErrInvalid, err)
	}
	if len(r.ranks) == 0 {
		return nil, fmt.Errorf("%w: expected a trace of mscclpp-run: it names no rank", framework.ErrInvalid)
	}
	t := &Trace{Job: r.job}
	for _, rank := range r.ranks {
		t.Ranks = append(t.Ranks, rank)
	}
	r.unfinished()
	t.Finish()
	return t, nil
}

// reader makes a trace of packets.
type reader struct {
	job    string
	tracks map[uint64]string
	ranks  map[int]*Rank
	open   map[uint64][]slice // by track
}

// slice is one that has begun.
type slice struct {
	category string
	call     Call
	trigger  Trigger
	transfer Transfer
	wait     Wait
	launch   Launch
	piece    Piece
	span     Span
}

func (r *reader) rank(n int) *Rank {
	if r.ranks[n] == nil {
		r.ranks[n] = &Rank{Rank: n, Culprit: framework.NoPeer}
	}
	return r.ranks[n]
}

func (r *reader) packet(b []byte) error {
	var at int64
	var e []byte
	err := fields(b, func(n protowire.Number, number uint64, data []byte) error {
		switch n {
		case packetTimestamp:
			at = int64(number)
		case packetEvent:
			e = data
		case packetDescriptor:
			return r.descriptor(data)
		}
		return nil
	})
	if err != nil || e == nil {
		return err
	}
	return r.event(at, e)
}

func (r *reader) descriptor(b []byte) error {
	var id uint64
	var name string
	err := fields(b, func(n protowire.Number, number uint64, data []byte) error {
		switch n {
		case trackUUID:
			id = number
		case trackName:
			name = string(data)
		}
		return nil
	})
	r.tracks[id] = name
	return err
}

func (r *reader) event(at int64, b []byte) error {
	e := event{at: at}
	err := fields(b, func(n protowire.Number, number uint64, data []byte) error {
		switch n {
		case eventType:
			e.kind = number
		case eventTrack:
			e.track = number
		case eventName:
			e.name = string(data)
		case eventCategories:
			e.category = string(data)
		case eventNotes:
			x, err := readNote(data)
			e.notes = append(e.notes, x)
			return err
		}
		return nil
	})
	if err != nil {
		return err
	}
	rank := int(e.track>>32) - 1
	if rank < 0 {
		return fmt.Errorf("%w: an event on track %d", framework.ErrInvalid, e.track)
	}
	r.take(r.rank(rank), &e)
	return nil
}

func readNote(b []byte) (x note, err error) {
	err = fields(b, func(n protowire.Number, number uint64, data []byte) error {
		switch n {
		case noteName:
			x.name = string(data)
		case noteString:
			x.text = string(data)
		case noteInt, noteUint:
			x.number = int64(number)
		}
		return nil
	})
	return x, err
}

func (e *event) text(name string) string {
	for _, n := range e.notes {
		if n.name == name {
			return n.text
		}
	}
	return ""
}

func (e *event) number(name string) int64 {
	for _, n := range e.notes {
		if n.name == name {
			return n.number
		}
	}
	return 0
}

// take adds an event to its rank.
func (r *reader) take(to *Rank, e *event) {
	stack := r.open[e.track]
	switch {
	case e.kind == typeInstant && e.category == "life":
		r.job = e.text("job")
		to.Size, to.PID, to.Culprit = int(e.number("size")), int(e.number("pid")), int(e.number("culprit"))
		to.Host, to.Device, to.State, to.Failure = e.text("host"), e.text("device"), e.text("state"), e.text("failure")
		to.ClockError, to.Lost, to.Dropped = e.number("clock error ns"), uint64(e.number("lost records")), uint64(e.number("dropped records"))
	case e.kind == typeInstant && (e.category == "got" || e.category == "derived"): // it follows from the put, or from a record of a kernel
	case e.kind == typeInstant && e.category == "sign":
		to.Signs = append(to.Signs, Sign{Comm: e.text("communicator"), Number: uint64(e.number("call")), Name: e.name, At: e.at, Bytes: uint64(e.number("bytes")), Peer: int(e.number("peer"))})
	case e.kind == typeInstant && e.category == "put":
		to.Puts = append(to.Puts, Put{Channel: e.channel(), At: e.at, Bytes: uint64(e.number("bytes")), Number: uint32(e.number("signal")), Signal: e.number("with signal") != 0})
	case e.kind == typeInstant:
		to.Moments = append(to.Moments, Moment{Name: e.name, At: e.at, Peer: int(e.number("peer"))})
	case e.kind == typeBegin:
		if e.category == "call" && e.number("ended") == 0 {
			to.Calls = append(to.Calls, callOf(e))
			return
		}
		r.open[e.track] = append(stack, r.begun(e))
	case e.kind == typeEnd && len(stack) > 0:
		s := stack[len(stack)-1]
		r.open[e.track] = stack[:len(stack)-1]
		switch s.category {
		case "call":
			s.call.End = e.at
			to.Calls = append(to.Calls, s.call)
		case "trigger":
			s.trigger.End = e.at
			to.Triggers = append(to.Triggers, s.trigger)
		case "transfer":
			s.transfer.End = e.at
			to.Transfers = append(to.Transfers, s.transfer)
		case "wait":
			s.wait.End = e.at
			to.Waits = append(to.Waits, s.wait)
		case "kernel":
			s.launch.End = e.at
			to.Launches = append(to.Launches, s.launch)
		case "piece":
			s.piece.End = e.at
			to.Pieces = append(to.Pieces, s.piece)
		case "device":
			to.Spans = append(to.Spans, s.span)
		}
	}
}

// begun is a slice that begins with an event.
func (r *reader) begun(e *event) slice {
	s := slice{category: e.category}
	bytes, peer := uint64(e.number("bytes")), int(e.number("peer"))
	switch e.category {
	case "call":
		s.call = callOf(e)
	case "trigger":
		s.trigger = Trigger{Writer: r.tracks[e.track], Begin: e.at, Bytes: bytes, Peer: peer, Queued: int(e.number("queued"))}
	case "transfer":
		s.transfer = Transfer{Writer: e.text("writer"), Peer: peer, Begin: e.at, Requests: int(e.number("requests")), Bytes: bytes}
	case "wait":
		s.wait = Wait{Channel: e.channel(), Begin: e.at, Number: uint32(e.number("signal"))}
	case "kernel":
		s.launch = Launch{Comm: e.text("communicator"), Number: uint64(e.number("call")), Begin: e.at,
			Wait: e.number("wait ns"), Copy: e.number("copy ns"), Reduce: e.number("reduce ns"), Packets: e.number("packets ns"), For: int(e.number("waited for")) - 1}
	case "device":
		s.span = Span{Comm: e.text("communicator"), Number: uint64(e.number("call")), Stream: int(e.number("stream")), Graph: e.number("graph") != 0,
			Begin: e.number("begin ns"), End: e.number("end ns"), Off: e.number("clock error ns")}
	case "piece":
		s.piece = Piece{Comm: e.text("communicator"), Number: uint64(e.number("call")), Name: e.text("piece"), Begin: e.at, Bytes: bytes, Peer: peer,
			Block: int(e.number("block")), Index: int(e.number("index")), Turn: int(e.number("turn"))}
	}
	return s
}

func (e *event) channel() Channel {
	return Channel{Comm: e.text("communicator"), Transport: e.text("transport"), Peer: int(e.number("peer")), Semaphore: int(e.number("semaphore"))}
}

func callOf(e *event) Call {
	return Call{
		Comm: e.text("communicator"), Number: uint64(e.number("call")), Kind: e.name, Algorithm: e.text("algorithm"),
		Bytes: uint64(e.number("bytes")), Begin: e.at, Chosen: e.at + e.number("chosen ns"), Late: -1,
		Guess: e.number("without records") != 0,
	}
}

// unfinished keeps the calls of which a file that was cut has no end.
func (r *reader) unfinished() {
	for id, stack := range r.open {
		for _, s := range stack {
			if s.category == "call" {
				to := r.rank(int(id>>32) - 1)
				to.Calls = append(to.Calls, s.call)
			}
		}
	}
}

// ReadAll reads traces of one job, one of each of its hosts, as one.
func ReadAll(names []string) (*Trace, error) {
	whole := &Trace{}
	var files []string
	for _, name := range names {
		if info, err := os.Stat(name); err == nil && info.IsDir() {
			files = append(files, filesOf(name)...)
		} else {
			files = append(files, name)
		}
	}
	for _, name := range files {
		t, err := ReadFile(name)
		if err != nil {
			return nil, err
		}
		if whole.Job != "" && whole.Job != t.Job {
			return nil, fmt.Errorf("%w: %s is of job %s: expected job %s, as the files before it", framework.ErrInvalid, name, t.Job, whole.Job)
		}
		whole.Job = t.Job
		whole.Ranks = append(whole.Ranks, t.Ranks...)
	}
	whole.Finish()
	return whole, nil
}
