package gpus

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"github.com/mscclpp-go/mscclpp/internal/gfx/machine"
	"github.com/mscclpp-go/mscclpp/internal/gfx/memory"
	"github.com/mscclpp-go/mscclpp/internal/gfx/object"
)

// Options are a machine's.
type Options struct {
	GPUs  int
	Shape memory.Shape // of each
	Seed  uint64
	Plant func(*object.Object) // changes a code object before it runs
	// Patience is how long the machine waits for a process that is to answer, or to read what it gets: kernels of all processes stand
	// still meanwhile. 0: a minute.
	Patience time.Duration
}

// Shape is that of a GPU with caches, small enough that the few blocks of a test are on different ones.
func Shape(arch string) memory.Shape {
	if arch == "gfx90a" {
		return memory.Shape{Arch: arch, XCDs: 1, CUs: 4}
	}
	return memory.Shape{Arch: arch, XCDs: 4, CUs: 2}
}

// Server is a machine that processes connect to.
type Server struct {
	opts     Options
	folder   string
	listener *net.UnixListener
	accepted sync.WaitGroup
	ended    chan struct{}

	// Of the one goroutine that runs kernels:
	machine  *machine.Machine
	memory   *spaces
	files    files
	clients  map[int]*client
	programs map[[32]byte]*machine.Program
	sums     map[*machine.Program][32]byte

	mu       sync.Mutex
	todo     []func()
	wake     chan struct{}
	closed   bool
	mistakes []error
	kernels  map[execution]bool
}

// execution is a kernel of a code object, which has this sum.
type execution struct {
	object [32]byte
	kernel string
}

// client is a process that uses the GPUs.
type client struct {
	server  *Server
	conn    *net.UnixConn
	number  int
	name    string // with the number that the system gave the process
	space   *space
	values  chan header   // the answer to an access
	gone    chan struct{} // closed when nothing comes any more
	codes   map[uint64]*machine.Program
	running map[*machine.Launch]uint64 // the numbers of launches
}

// post has the goroutine that runs kernels call f. It never waits: that goroutine may itself wait for the caller.
func (s *Server) post(f func()) {
	s.mu.Lock()
	s.todo = append(s.todo, f)
	s.mu.Unlock()
	s.rouse()
}

func (s *Server) rouse() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

func (s *Server) mistake(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mistakes = append(s.mistakes, err)
}

func (s *Server) ran(l *machine.Launch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kernels[execution{s.sums[l.Program], l.Kernel}] = true
}

// program reads a code object, once for all processes.
func (s *Server) program(f *os.File) (*machine.Program, error) {
	if f == nil {
		return nil, errors.New("a code object without a file")
	}
	b, err := io.ReadAll(io.NewSectionReader(f, 0, 64<<20))
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(b)
	if p := s.programs[sum]; p != nil {
		return p, nil
	}
	p, err := machine.Load(b)
	if err != nil {
		return nil, err
	}
	if p.Object.Arch != s.opts.Shape.Arch {
		return nil, fmt.Errorf("code for %s on %s", p.Object.Arch, s.opts.Shape.Arch)
	}
	if s.opts.Plant != nil {
		s.opts.Plant(p.Object)
	}
	s.programs[sum], s.sums[p] = p, sum
	return p, nil
}
