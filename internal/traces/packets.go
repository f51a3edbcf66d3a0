package traces

import "google.golang.org/protobuf/encoding/protowire"

// The numbers of fields in perfetto/trace/trace_packet.proto and track_event/*.proto that traces use.
const (
	fieldPacket = 1 // of Trace

	packetTimestamp  = 8
	packetSequence   = 10
	packetEvent      = 11
	packetFlags      = 13
	packetDescriptor = 60

	trackUUID    = 1
	trackName    = 2
	trackProcess = 3
	trackParent  = 5

	processPID  = 1
	processName = 6

	eventNotes      = 4
	eventType       = 9
	eventTrack      = 11
	eventCategories = 22
	eventName       = 23
	eventFlows      = 47
	eventFlowEnds   = 48

	noteUint   = 3
	noteInt    = 4
	noteString = 6
	noteName   = 10

	typeBegin   = 1
	typeEnd     = 2
	typeInstant = 3

	sequence     = 1 // all packets are of one writer
	stateCleared = 1
)

// note is a fact about an event: a text, or a number.
type note struct {
	name   string
	text   string
	number int64
}

// event is one packet of a track.
type event struct {
	at       int64
	kind     uint64
	track    uint64
	name     string
	category string
	notes    []note
	flows    []uint64
	flowEnds []uint64
}

// Tracks of a rank. The others have the numbers behind these.
const (
	trackRank = 0
	trackLife = 1
)

func track(rank, n int) uint64 { return uint64(rank+1)<<32 | uint64(n) }

// appendTrack appends the description of a track. The first packet of a trace begins its state.
func appendTrack(b []byte, id, parent uint64, name string, pid int, first bool) []byte {
	var d []byte
	d = appendVarint(d, trackUUID, id)
	if pid != 0 {
		p := appendVarint(nil, processPID, uint64(pid))
		d = appendBytes(d, trackProcess, appendBytes(p, processName, []byte(name)))
	} else {
		d = appendBytes(d, trackName, []byte(name))
		d = appendVarint(d, trackParent, parent)
	}
	p := appendVarint(nil, packetSequence, sequence)
	if first {
		p = appendVarint(p, packetFlags, stateCleared)
	}
	return appendBytes(b, fieldPacket, appendBytes(p, packetDescriptor, d))
}

func (e *event) append(b []byte) []byte {
	var x []byte
	x = appendVarint(x, eventType, e.kind)
	x = appendVarint(x, eventTrack, e.track)
	if e.category != "" {
		x = appendBytes(x, eventCategories, []byte(e.category))
	}
	if e.name != "" {
		x = appendBytes(x, eventName, []byte(e.name))
	}
	for _, n := range e.notes {
		y := appendBytes(nil, noteName, []byte(n.name))
		if n.text != "" {
			y = appendBytes(y, noteString, []byte(n.text))
		} else {
			y = appendVarint(y, noteInt, uint64(n.number))
		}
		x = appendBytes(x, eventNotes, y)
	}
	for _, f := range e.flows {
		x = protowire.AppendFixed64(protowire.AppendTag(x, eventFlows, protowire.Fixed64Type), f)
	}
	for _, f := range e.flowEnds {
		x = protowire.AppendFixed64(protowire.AppendTag(x, eventFlowEnds, protowire.Fixed64Type), f)
	}
	p := appendVarint(nil, packetTimestamp, uint64(max(0, e.at)))
	p = appendVarint(p, packetSequence, sequence)
	return appendBytes(b, fieldPacket, appendBytes(p, packetEvent, x))
}

func appendVarint(b []byte, field protowire.Number, v uint64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(b, field, protowire.VarintType), v)
}

func appendBytes(b []byte, field protowire.Number, v []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(b, field, protowire.BytesType), v)
}
