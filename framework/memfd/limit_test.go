package memfd

import (
	"bytes"
	"errors"
	"math"
	"testing"
	"testing/fstest"

	"github.com/mscclpp-go/mscclpp/framework"
)

func file(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text)} }

func TestAvailable(t *testing.T) {
	const meminfo = "MemTotal:  100 kB\nMemFree:  1 kB\nMemAvailable:  64 kB\n"
	for _, c := range []struct {
		name  string
		root  fstest.MapFS
		want  uint64
		cache uint64 // of it
	}{
		{"nothing readable", fstest.MapFS{}, math.MaxUint64, 0},
		{"machine only", fstest.MapFS{"proc/meminfo": file(meminfo)}, 64 << 10, 0},
		{"version 2, limit of the parent", fstest.MapFS{
			"proc/meminfo":                       file(meminfo),
			"proc/self/cgroup":                   file("0::/a/b\n"),
			"sys/fs/cgroup/a/b/memory.max":       file("max\n"),
			"sys/fs/cgroup/a/b/memory.current":   file("10\n"),
			"sys/fs/cgroup/a/memory.max":         file("1000\n"),
			"sys/fs/cgroup/a/memory.current":     file("700\n"),
			"sys/fs/cgroup/a/memory.stat":        file("anon 5\ninactive_file 100\n"),
			"sys/fs/cgroup/other/memory.max":     file("1\n"),
			"sys/fs/cgroup/other/memory.current": file("1\n"),
		}, 400, 100},
		{"version 2, path of the host inside a container", fstest.MapFS{
			"proc/self/cgroup":             file("0::/docker/123\n"),
			"sys/fs/cgroup/memory.max":     file("5000\n"),
			"sys/fs/cgroup/memory.current": file("4999\n"),
		}, 1, 0},
		{"over the limit", fstest.MapFS{
			"proc/self/cgroup":             file("0::/\n"),
			"sys/fs/cgroup/memory.max":     file("10\n"),
			"sys/fs/cgroup/memory.current": file("11\n"),
		}, 0, 0},
		{"version 1", fstest.MapFS{
			"proc/self/cgroup": file("5:cpu,cpuacct:/x\n4:memory:/x\nnonsense\n"),
			"sys/fs/cgroup/memory/x/memory.limit_in_bytes": file("300\n"),
			"sys/fs/cgroup/memory/x/memory.usage_in_bytes": file("100\n"),
		}, 200, 0},
	} {
		if got := available(c.root, true); got != c.want {
			t.Errorf("%s: %d: expected %d", c.name, got, c.want)
		}
		if got := available(c.root, false); got != c.want-c.cache {
			t.Errorf("%s, without page cache: %d: expected %d", c.name, got, c.want-c.cache)
		}
	}
}

func TestReservation(t *testing.T) {
	page := PageSize()
	a, err := New("t-window", 2*page, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	r, err := Reserve(4*page, hugePage)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if uintptr(r.Addr())%hugePage != 0 || r.Len() != 4*page {
		t.Fatalf("%d bytes at %p", r.Len(), r.Addr())
	}
	if err := r.Map(2*page, a.File(), page, page); err != nil {
		t.Fatal(err)
	}
	copy(a.Bytes()[page:], "hello")
	m := Memory{addr: r.Addr(), bytes: r.Len()}
	if !bytes.HasPrefix(m.Bytes()[2*page:], []byte("hello")) {
		t.Error("the window does not show the file")
	}
	for _, c := range [][3]uint64{{1, 0, page}, {0, 1, page}, {4 * page, 0, page}, {3 * page, 0, 2 * page}, {^uint64(0) - page + 1, 0, page}, {0, 0, 3 * page}} {
		if err := r.Map(c[0], a.File(), c[1], c[2]); !errors.Is(err, framework.ErrInvalid) {
			t.Errorf("at %d, offset %d, %d bytes: %v: expected ErrInvalid", c[0], c[1], c[2], err)
		}
	}
	for range 2 {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}
	if n := mappings(t, "t-window"); n != 1 {
		t.Errorf("%d mappings: expected that of the file alone", n)
	}
	if _, err := Reserve(1<<47, page); !errors.Is(err, framework.ErrInvalid) {
		t.Errorf("%v: expected ErrInvalid", err)
	}
}
