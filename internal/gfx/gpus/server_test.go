package gpus

import (
	"encoding/binary"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/mscclpp-go/mscclpp/internal/gfx/memory"
	"github.com/mscclpp-go/mscclpp/internal/gfx/object/objecttest"
)

// process is a client of a machine, as the emulated runtime is one.
type process struct {
	t    *testing.T
	conn *net.UnixConn
	host map[uint64]uint64 // words of its own memory
}

func connect(t *testing.T, s *Server) *process {
	t.Helper()
	conn, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: s.Path(), Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	p := &process{t, conn, map[uint64]uint64{}}
	p.send(header{Kind: hello}, "gfx942:sramecc+:xnack-", nil)
	return p
}

func (p *process) send(h header, rest string, f *os.File) {
	p.t.Helper()
	if err := p.try(h, rest, f); err != nil {
		p.t.Fatal(err)
	}
}

func (p *process) try(h header, rest string, f *os.File) error {
	p.t.Helper()
	var rights []byte
	if f != nil {
		rights = syscall.UnixRights(int(f.Fd()))
	}
	b, err := binary.Append(nil, binary.LittleEndian, &h)
	if err != nil {
		p.t.Fatal(err)
	}
	_, _, err = p.conn.WriteMsgUnix(append(b, rest...), rights, nil)
	return err
}

// result answers accesses until a result comes.
func (p *process) result() (header, string) {
	p.t.Helper()
	buffer := make([]byte, maxMessage)
	for {
		h, rest, _, err := receive(p.conn, buffer)
		if err != nil {
			p.t.Fatal(err)
		}
		if h.Kind == result {
			return h, string(rest)
		}
		old, known := p.host[h.Address]
		v := header{Kind: value, Value: [2]uint64{old}}
		if !known {
			v.Result = 700
		}
		if h.Result == stores {
			p.host[h.Address] = h.Value[0]
		}
		p.send(v, "", nil)
	}
}

func file32(t *testing.T, data []byte) *os.File {
	t.Helper()
	path := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

// words is the code object of the kernel that stores a word: its arguments are the address and the value.
func (p *process) words() uint64 {
	p.t.Helper()
	const id = 7
	p.send(header{Kind: code, ID: id}, "", file32(p.t, objecttest.In(p.t, "framework/device/hip/image")["word-gfx942.co"]))
	if h, text := p.result(); h.Result != 0 || h.ID != id {
		p.t.Fatalf("%+v %s", h, text)
	}
	return id
}

func (p *process) store(code uint64, device int32, addr, v uint64) (header, string) {
	p.t.Helper()
	args := binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, addr), v)
	p.send(header{Kind: launch, ID: 9, Device: device, Value: [2]uint64{code}, Grid: 1, Block: 1}, wordKernel+"\x00"+string(args), nil)
	return p.result()
}

const wordKernel = "mscclpp_hip_word"

func start(t *testing.T) *Server {
	t.Helper()
	s, err := Start(Options{GPUs: 2, Shape: Shape("gfx942"), Seed: 3})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// Processes have memory at addresses of their own; a kernel's stores reach it, that of another process that shares it, and that of the host.
func TestMemoryOfProcesses(t *testing.T) {
	s := start(t)
	f := file32(t, make([]byte, 4096))
	a, b := connect(t, s), connect(t, s)
	a.send(header{Kind: device, Address: 0x10000, Bytes: 4096, Device: 0, Value: [2]uint64{1}}, "", f)
	b.send(header{Kind: device, Address: 0x70000, Bytes: 2048, Offset: 2048, Device: -1}, "", f)
	a.host[0x5000] = 1
	a.send(header{Kind: host, Address: 0x5000, Bytes: 8}, "", nil)
	if h, text := a.store(a.words(), 0, 0x10008, 0x1122334455667788); h.Result != 0 {
		t.Fatal(text)
	}
	if h, text := b.store(b.words(), 1, 0x70010, 42); h.Result != 0 {
		t.Fatal(text)
	}
	if h, text := a.store(7, 0, 0x5000, 43); h.Result != 0 || a.host[0x5000] != 43 {
		t.Errorf("%s; the host has %d, expected 43", text, a.host[0x5000])
	}
	got := make([]byte, 4096)
	if _, err := f.ReadAt(got, 0); err != nil {
		t.Fatal(err)
	}
	if x, y := binary.LittleEndian.Uint64(got[8:]), binary.LittleEndian.Uint64(got[2064:]); x != 0x1122334455667788 || y != 42 {
		t.Errorf("%#x and %d: expected what the kernels stored", x, y)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// A kernel of a process that imported memory may run before one of its owner. Caches keep the memory once it is known whose it is.
func TestOwnerComesLater(t *testing.T) {
	f := file32(t, make([]byte, 4096))
	regions := &memory.Regions{}
	s := files{regions: regions, of: map[fileKey]*file{}}
	for _, step := range []struct {
		owner int
		kind  memory.Kind
		want  memory.Region
	}{
		{memory.Host, memory.HostKind, memory.Region{Owner: memory.Host, Kind: memory.HostKind}},
		{1, memory.Coarse, memory.Region{Owner: 1, Kind: memory.Coarse}},
		{memory.Host, memory.HostKind, memory.Region{Owner: 1, Kind: memory.Coarse}},
	} {
		x, err := s.open(f, step.owner, step.kind)
		if err != nil {
			t.Fatal(err)
		}
		if got := x.region; got.Owner != step.want.Owner || got.Kind != step.want.Kind || !regions.Has(got.Start) {
			t.Errorf("announced as %d of %d: region %+v: expected %+v", step.kind, step.owner, got, step.want)
		}
	}
}

// Addresses of another process, and memory that was taken away, are none; the launch fails, and the machine goes on.
func TestAddressesOfNothing(t *testing.T) {
	s := start(t)
	a, b := connect(t, s), connect(t, s)
	a.send(header{Kind: device, Address: 0x10000, Bytes: 4096, Device: 0}, "", file32(t, make([]byte, 4096)))
	if h, text := a.store(a.words(), 0, 0x10000, 1); h.Result != 0 {
		t.Fatal(text)
	}
	if h, text := b.store(b.words(), 0, 0x10000, 1); h.Result == 0 || !strings.Contains(text, errNoMemory.Error()) {
		t.Errorf("%d %q: expected an error", h.Result, text)
	}
	a.send(header{Kind: forget, Address: 0x10000}, "", nil)
	if h, text := a.store(7, 0, 0x10000, 1); h.Result == 0 || !strings.Contains(text, errNoMemory.Error()) {
		t.Errorf("%d %q: expected an error", h.Result, text)
	}
	if err := s.Close(); err == nil || strings.Count(err.Error(), errNoMemory.Error()) != 2 {
		t.Errorf("%v: expected both mistakes", err)
	}
}

// A process that ends takes its kernels with it, also one that waits for an answer of its.
func TestProcessEnds(t *testing.T) {
	s := start(t)
	a, b := connect(t, s), connect(t, s)
	id := a.words()
	a.send(header{Kind: host, Address: 0x5000, Bytes: 8}, "", nil)
	args := binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, 0x5000), 1)
	a.send(header{Kind: launch, ID: 9, Value: [2]uint64{id}, Grid: 1, Block: 1}, wordKernel+"\x00"+string(args), nil)
	if h, _, _, err := receive(a.conn, make([]byte, maxMessage)); err != nil || h.Kind != access {
		t.Fatalf("%+v, %v: expected an access", h, err)
	}
	if err := a.conn.Close(); err != nil {
		t.Fatal(err)
	}
	b.send(header{Kind: device, Address: 0x10000, Bytes: 4096}, "", file32(t, make([]byte, 4096)))
	if h, text := b.store(b.words(), 0, 0x10000, 1); h.Result != 0 {
		t.Error(text)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// A process that is stopped holds the others up for a while only. The mistake names it.
func TestProcessThatIsStopped(t *testing.T) {
	for name, stopped := range map[string]struct {
		act  func(p *process)
		want string
	}{
		"answers": {func(p *process) {
			id := p.words()
			p.send(header{Kind: host, Address: 0x5000, Bytes: 8}, "", nil)
			args := binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, 0x5000), 1)
			p.send(header{Kind: launch, ID: 9, Value: [2]uint64{id}, Grid: 1, Block: 1}, wordKernel+"\x00"+string(args), nil)
			if h, _, _, err := receive(p.conn, make([]byte, maxMessage)); err != nil || h.Kind == result { // it waits for the answer now
				p.t.Errorf("%+v, %v: expected an access", h, err)
			}
		}, "it has not answered for 200ms"},
		"reads": {func(p *process) {
			for range 20000 { // more answers than a socket holds
				_ = p.try(header{Kind: code}, "", nil) // the machine may have closed the connection
			}
		}, "it has read nothing for 200ms"},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := Start(Options{GPUs: 2, Shape: Shape("gfx942"), Seed: 3, Patience: 200 * time.Millisecond})
			if err != nil {
				t.Fatal(err)
			}
			a, b := connect(t, s), connect(t, s)
			b.send(header{Kind: device, Address: 0x10000, Bytes: 4096}, "", file32(t, make([]byte, 4096)))
			code := b.words()
			stopped.act(a)
			if h, text := b.store(code, 0, 0x10000, 1); h.Result != 0 {
				t.Error(text)
			}
			err = s.Close()
			if who := "process 1 (pid " + strconv.Itoa(os.Getpid()) + ")"; err == nil || !strings.Contains(err.Error(), who) || !strings.Contains(err.Error(), stopped.want) {
				t.Errorf("%v: expected %q of %s", err, stopped.want, who)
			}
		})
	}
}

// A process can ask whether the machine lives while a kernel of its own runs.
func TestAlive(t *testing.T) {
	s := start(t)
	p := connect(t, s)
	p.send(header{Kind: device, Address: 0x10000, Bytes: 4096}, "", file32(t, make([]byte, 4096)))
	p.send(header{Kind: launch, ID: 9, Value: [2]uint64{p.words()}, Grid: 1, Block: 1}, "mscclpp_hip_wait"+"\x00"+string(binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, 0x10000), 1)), nil)
	for id := range uint64(3) {
		p.send(header{Kind: alive, ID: 20 + id}, "", nil)
		if h, text := p.result(); h.ID != 20+id || h.Result != 0 {
			t.Errorf("%+v %s: expected an answer to %d", h, text, 20+id)
		}
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// Messages that make no sense end the connection, and are the machine's mistakes.
func TestMessagesOfNothing(t *testing.T) {
	for name, send := range map[string]func(p *process){
		"kind": func(p *process) { p.send(header{Kind: 99}, "", nil) },
		"device": func(p *process) {
			p.send(header{Kind: device, Device: 2, Address: 4096, Bytes: 8}, "", file32(p.t, make([]byte, 8)))
		},
		"no file": func(p *process) { p.send(header{Kind: device, Address: 4096, Bytes: 8}, "", nil) },
		"beyond": func(p *process) {
			p.send(header{Kind: device, Address: 4096, Bytes: 9}, "", file32(p.t, make([]byte, 8)))
		},
		"overlap": func(p *process) {
			p.send(header{Kind: host, Address: 4096, Bytes: 8}, "", nil)
			p.send(header{Kind: host, Address: 4100, Bytes: 8}, "", nil)
		},
		"forget":  func(p *process) { p.send(header{Kind: forget, Address: 4096}, "", nil) },
		"launch":  func(p *process) { p.send(header{Kind: launch}, wordKernel+"\x00", nil) },
		"unasked": func(p *process) { p.send(header{Kind: value}, "", nil); p.send(header{Kind: value}, "", nil) },
		"other":   func(p *process) { p.send(header{Kind: hello}, "gfx90a", nil) },
	} {
		t.Run(name, func(t *testing.T) {
			s := start(t)
			p := connect(t, s)
			send(p)
			if _, _, _, err := receive(p.conn, make([]byte, maxMessage)); err == nil {
				t.Error("expected the end of the connection")
			}
			if err := s.Close(); err == nil || !strings.Contains(err.Error(), "process 1 (pid "+strconv.Itoa(os.Getpid())+"): ") {
				t.Errorf("%v: expected the mistake", err)
			}
		})
	}
}
