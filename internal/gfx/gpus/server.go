package gpus

import (
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/mscclpp-go/mscclpp/internal/gfx/machine"
	"github.com/mscclpp-go/mscclpp/internal/gfx/memory"
	"github.com/mscclpp-go/mscclpp/internal/gfx/object"
)

// Start makes a machine that listens in a folder of its own.
func Start(o Options) (*Server, error) {
	if o.GPUs < 1 || o.GPUs > 64 {
		return nil, fmt.Errorf("%d GPUs: expected 1 to 64", o.GPUs)
	}
	folder, err := os.MkdirTemp("", "gpus-")
	if err != nil {
		return nil, err
	}
	listener, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: filepath.Join(folder, "s"), Net: "unixpacket"})
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(folder))
	}
	o.Patience = cmp.Or(o.Patience, time.Minute)
	regions := &memory.Regions{}
	caches := memory.NewCaches(regions, o.GPUs, o.Shape)
	s := &Server{
		opts: o, folder: folder, listener: listener, ended: make(chan struct{}),
		memory:  &spaces{caches, map[int]*space{}},
		files:   files{caches, regions, map[fileKey]*file{}},
		clients: map[int]*client{}, programs: map[[32]byte]*machine.Program{}, wake: make(chan struct{}, 1), kernels: map[execution]bool{}, sums: map[*machine.Program][32]byte{},
	}
	s.machine = machine.New(s.memory, machine.Options{Seed: o.Seed, Weak: true, RealTime: true})
	s.accepted.Go(s.accept)
	go s.run()
	return s, nil
}

// Path is that of the socket.
func (s *Server) Path() string { return filepath.Join(s.folder, "s") }

// Kernels are the names of those that have run.
func (s *Server) Kernels() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	names := map[string]bool{}
	for e := range s.kernels {
		names[e.kernel] = true
	}
	return slices.Sorted(maps.Keys(names))
}

// NotRun lists the kernels of code objects for this machine's GPUs, of a name each, that have not run.
func (s *Server) NotRun(objects map[string][]byte) (list []string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(objects)) {
		o, err := object.Open(objects[name])
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		for i := range o.Kernels {
			if k := o.Kernels[i].Name; o.Arch == s.opts.Shape.Arch && !s.kernels[execution{sha256.Sum256(objects[name]), k}] {
				list = append(list, name+": "+k)
			}
		}
	}
	return list, nil
}

// Close ends the machine, and returns the mistakes that kernels made.
func (s *Server) Close() error {
	err := s.listener.Close()
	s.accepted.Wait()
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.rouse()
	<-s.ended
	return errors.Join(append(s.mistakes, err, os.RemoveAll(s.folder))...)
}

func (s *Server) accept() {
	for n := 1; ; n++ {
		conn, err := s.listener.AcceptUnix()
		if err != nil {
			return // closed
		}
		c := &client{
			server: s, conn: conn, number: n, name: nameOf(conn, n), values: make(chan header, 1), gone: make(chan struct{}),
			codes: map[uint64]*machine.Program{}, running: map[*machine.Launch]uint64{},
		}
		c.space = &space{access: c.access}
		s.post(func() {
			s.clients[n], s.memory.of[n] = c, c.space
			go c.read()
		})
	}
}

func (s *Server) run() {
	defer close(s.ended)
	for {
		s.mu.Lock()
		todo, closed := s.todo, s.closed
		s.todo = nil
		s.mu.Unlock()
		for _, f := range todo {
			f()
		}
		switch {
		case closed:
			for _, c := range s.clients {
				c.end()
			}
			return
		case s.machine.Idle():
			<-s.wake
		default:
			s.steps()
		}
	}
}

// steps lets kernels advance for a while.
func (s *Server) steps() {
	for range 64 {
		if s.machine.Idle() {
			return
		}
		l, err := s.machine.Step()
		if l == nil {
			continue
		}
		if err != nil {
			s.machine.Drop(l)
			if !errors.Is(err, errGone) {
				s.mistake(err)
			}
		}
		if c := s.clients[l.Space]; c != nil {
			c.check(c.done(l, err))
		}
	}
}
