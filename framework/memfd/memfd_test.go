package memfd

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/mscclpp-go/mscclpp/framework"
)

// mappings counts the process's mappings of memfds with a name, and descriptors
// its open ones of any memfd.
func mappings(t *testing.T, name string) int {
	t.Helper()
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	return strings.Count(string(maps), "memfd:"+name+" ")
}

func descriptors(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, e := range entries {
		if link, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil && strings.Contains(link, "memfd:") {
			n++
		}
	}
	return n
}

func TestNewIsZeroedSealedAndShared(t *testing.T) {
	fds := descriptors(t)
	for _, size := range []uint64{1, 4095, 4096, 4097, 3 << 20} {
		m, err := New("t-new", size, Options{})
		if err != nil {
			t.Fatal(err)
		}
		if m.Len() != size || uint64(len(m.Bytes())) != size || !bytes.Equal(m.Bytes(), make([]byte, size)) {
			t.Fatalf("%d bytes: got %d, or not zero", size, m.Len())
		}
		o, err := Open(m.File(), 0, size)
		if err != nil {
			t.Fatal(err)
		}
		o.Bytes()[size-1] = 7
		if m.Bytes()[size-1] != 7 {
			t.Errorf("%d bytes: a write through one mapping is not seen through the other", size)
		}
		if size >= hugePage && uintptr(m.Addr())%hugePage != 0 {
			t.Errorf("%d bytes at %p: expected an address at which huge pages can be used", size, m.Addr())
		}
		for range 2 { // Close is idempotent
			if err := errors.Join(o.Close(), m.Close()); err != nil {
				t.Fatal(err)
			}
		}
	}
	if n := mappings(t, "t-new"); n != 0 {
		t.Errorf("%d mappings are left", n)
	}
	if n := descriptors(t); n != fds {
		t.Errorf("%d descriptors: expected %d", n, fds)
	}
}

func TestSealedMemoryCannotBeCut(t *testing.T) {
	m, err := New("t-seal", 64<<10, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	fd := int(m.File().Fd())
	for _, size := range []int64{0, 4096, 1 << 20} {
		if err := unix.Ftruncate(fd, size); !errors.Is(err, unix.EPERM) {
			t.Errorf("ftruncate to %d: %v: expected EPERM", size, err)
		}
	}
	if _, err := unix.FcntlInt(m.File().Fd(), unix.F_ADD_SEALS, unix.F_SEAL_WRITE); !errors.Is(err, unix.EPERM) {
		t.Errorf("adding a seal: %v: expected EPERM", err)
	}
	for i := range m.Bytes() { // would be SIGBUS, not a failed assertion
		m.Bytes()[i]++
	}
}

func TestOpenAtAnyOffset(t *testing.T) {
	m, err := New("t-offset", 3*PageSize(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	for i := range m.Bytes() {
		m.Bytes()[i] = byte(i * 7)
	}
	for _, offset := range []uint64{0, 1, PageSize() - 1, PageSize(), PageSize() + 17} {
		n := m.Len() - offset
		o, err := Open(m.File(), offset, n)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(o.Bytes(), m.Bytes()[offset:]) {
			t.Errorf("offset %d: wrong bytes", offset)
		}
		if err := o.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestOpenRefuses(t *testing.T) {
	m, err := New("t-refuse", 8192, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	unsealed := rawMemfd(t, 8192, 0)
	readOnly := rawMemfd(t, 8192, unix.F_SEAL_SHRINK|unix.F_SEAL_WRITE)
	file, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	closed := rawMemfd(t, 8192, Seals)
	closed.Close()

	for _, c := range []struct {
		name          string
		file          *os.File
		offset, bytes uint64
		want          string
	}{
		{"nothing", nil, 0, 1, "without a descriptor"},
		{"empty", m.File(), 0, 0, "0 bytes"},
		{"too long", m.File(), 0, 8193, "exceed the memfd of 8192"},
		{"past the end", m.File(), 8192, 1, "exceed"},
		{"sum wraps", m.File(), 1, ^uint64(0), "exceed"},
		{"offset wraps", m.File(), ^uint64(0), 2, "exceed"},
		{"unsealed", unsealed, 0, 1, "not sealed"},
		{"read-only", readOnly, 0, 1, "against writing"},
		{"ordinary file", file, 0, 1, "not a memfd"},
		{"closed", closed, 0, 1, "descriptor"},
	} {
		o, err := Open(c.file, c.offset, c.bytes)
		if err == nil {
			o.Close()
			t.Errorf("%s: opened", c.name)
			continue
		}
		if !errors.Is(err, framework.ErrInvalid) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v: expected ErrInvalid with %q", c.name, err, c.want)
		}
	}
}

func rawMemfd(t *testing.T, size int64, seals int) *os.File {
	t.Helper()
	fd, err := unix.MemfdCreate("t-raw", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), "raw")
	t.Cleanup(func() { f.Close() })
	if err := unix.Ftruncate(fd, size); err != nil {
		t.Fatal(err)
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals); err != nil {
		t.Fatal(err)
	}
	return f
}

func TestAbsurdSizesAreRefused(t *testing.T) {
	for size, want := range map[uint64]error{0: framework.ErrInvalid, ^uint64(0): framework.ErrInvalid, 1 << 45: framework.ErrUnavailable} {
		m, err := New("t-absurd", size, Options{})
		if err == nil {
			m.Close()
			t.Fatalf("%d bytes were given", size)
		}
		if !errors.Is(err, want) {
			t.Errorf("%d bytes: %v: expected %v", size, err, want)
		}
	}
	_, err := New("t-absurd", 1<<45, Options{})
	if err == nil || !strings.Contains(err.Error(), "35184372088832 bytes") || !strings.Contains(err.Error(), "available") {
		t.Errorf("%v: expected both sizes", err)
	}
}

// A process that runs into its limit of address space gets an error and lives.
func TestRefusedMapping(t *testing.T) {
	if os.Getenv("MEMFD_LIMIT") != "" {
		const size = 64 << 20
		limit(t, 3*size)
		fds := descriptors(t)
		var held []*Memory
		var err error
		for err == nil && len(held) < 8 {
			var m *Memory
			if m, err = New("t-limit", size, Options{Prefault: 1}); err == nil {
				held = append(held, m)
			}
		}
		if !errors.Is(err, framework.ErrUnavailable) || !strings.Contains(err.Error(), "67108864 bytes") {
			t.Errorf("%d times given, then %v: expected ErrUnavailable with the size", len(held), err)
		}
		if n := descriptors(t); n != fds+len(held) {
			t.Errorf("%d memfds: expected %d", n, fds+len(held))
		}
		return
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestRefusedMapping$")
	cmd.Env = append(os.Environ(), "MEMFD_LIMIT=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

// limit leaves the process with so many more bytes of address space.
func limit(t *testing.T, more uint64) {
	t.Helper()
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	kib, ok := field(text, "VmSize:")
	if !ok {
		t.Fatal("no VmSize in /proc/self/status")
	}
	l := unix.Rlimit{Cur: kib<<10 + more, Max: unix.RLIM_INFINITY}
	if err := unix.Setrlimit(unix.RLIMIT_AS, &l); err != nil {
		t.Fatal(err)
	}
}
