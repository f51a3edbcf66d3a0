package remote

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/launch"
)

// greeting is the first line of an agent. Output of a login shell before it is not part of the
// conversation. The number is the version of what follows.
const greeting = "mscclpp-run agent 2"

// A frame is a byte that says what it is, its length as u32, little-endian, and so many
// bytes.
const (
	kindHello      = 'h' // agent: Hello
	kindCounted    = 'n' // agent: counted, the answer to kindCount
	kindRendezvous = 'u' // agent: rendezvous
	kindOut        = 'o' // agent: standard output of the ranks
	kindErr        = 'e' // agent: their standard error
	kindReport     = 'r' // agent: lines of the agent itself
	kindFailed     = 'f' // agent: launch.Result, as soon as a rank has failed
	kindTaken      = 'c' // agent: the last piece of standard input was read
	kindEnd        = 'x' // agent: end, the last frame
	kindCount      = 'q' // launcher: Count, before a Spec, where there is one rank for each device
	kindSpec       = 's' // launcher: Spec
	kindSignal     = 'g' // launcher: one byte, the number of a signal
	kindIn         = 'i' // launcher: standard input of rank 0; an empty one is its end
)

// maxFrame bounds what either end has to keep.
const maxFrame = 8 << 20

type frame struct {
	kind byte
	body []byte
}

// Hello is what an agent says about itself and its host.
type Hello struct {
	Version string // of mscclpp-run, which all hosts should have alike
	CPUs    int
}

// Count asks how many devices a host has.
type Count struct {
	Type     string // "cuda"; "", auto or host: the first type of which there is one
	Backends []Backend
}

// Backend is the back end of a type of device that the configuration names.
type Backend struct{ Type, Path, SHA256 string }

// counted is the answer.
type counted struct {
	Devices int
	None    string // why there is none
	Failed  string // why it is not known
}

// Spec is what an agent is to start. Its zero values are those of launch.Job.
type Spec struct {
	Program string   // "" = mscclpp-run itself
	Args    []string // with the name of the program
	Dir     string
	Env     []string // on top of the environment that ssh gives
	Place   launch.Place

	Listen    bool   // make the rendezvous: this is the host of rank 0
	At        string // with Listen: an address that others reach; "" = found out
	Interface string // with Listen: limits what is found out, a name or a network
	Family    string // likewise: inet, inet6 or ""
	UniqueID  string // without Listen
	Bind      string // see launch.Bind
	Output    launch.Output
	Linger    time.Duration
	Grace     time.Duration
	Stdin     bool // rank 0 gets what the launcher reads
	Bindings  bool // report the processors of each rank
}

// rendezvous is where the ranks of the job find each other.
type rendezvous struct {
	UniqueID   string
	MasterAddr string
	MasterPort int
}

// end is how the ranks of a host ended.
type end struct {
	launch.Result
	Error string // the reason that they were not started
}

// frames writes frames. Several goroutines may.
type frames struct {
	mu sync.Mutex
	w  io.Writer
}

func (f *frames) write(kind byte, body []byte) error {
	if len(body) > maxFrame {
		return fmt.Errorf("%w: a message of %d bytes for the other end of ssh: expected at most %d", framework.ErrInvalid, len(body), maxFrame)
	}
	b := append(make([]byte, 0, 5+len(body)), kind)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(body)))
	f.mu.Lock()
	defer f.mu.Unlock()
	_, err := f.w.Write(append(b, body...))
	return err
}

func (f *frames) value(kind byte, v any) error {
	body, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return f.write(kind, body)
}

// stream is a writer whose bytes become frames of one kind. A frame ends with a line if it
// can: what other hosts say is printed between two.
type stream struct {
	f    *frames
	kind byte
}

func (s stream) Write(p []byte) (int, error) {
	for done := 0; done < len(p); {
		n := min(len(p)-done, 64<<10)
		if end := bytes.LastIndexByte(p[done:done+n], '\n') + 1; end > 0 {
			n = end
		}
		if err := s.f.write(s.kind, p[done:done+n]); err != nil {
			return done, err
		}
		done += n
	}
	return len(p), nil
}

// readFrame reads one frame. The body is read in pieces, so that a length alone
// makes nobody allocate.
func readFrame(r io.Reader) (frame, error) {
	var head [5]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return frame{}, err
	}
	n := binary.LittleEndian.Uint32(head[1:])
	if n > maxFrame {
		return frame{}, fmt.Errorf("%w: a message of %d bytes from the other end of ssh: expected at most %d", framework.ErrPeer, n, maxFrame)
	}
	var body []byte
	for left := int(n); left > 0; {
		piece := min(left, 64<<10)
		at := len(body)
		body = append(body, make([]byte, piece)...)
		if _, err := io.ReadFull(r, body[at:]); err != nil {
			if err == io.EOF {
				err = io.ErrUnexpectedEOF
			}
			return frame{}, err
		}
		left -= piece
	}
	return frame{head[0], body}, nil
}

// decode reads the value of a frame.
func decode[T any](f frame) (T, error) {
	var v T
	if err := json.Unmarshal(f.body, &v); err != nil {
		return v, fmt.Errorf("%w: message %q of the other end of ssh: %w", framework.ErrPeer, f.kind, err)
	}
	return v, nil
}
