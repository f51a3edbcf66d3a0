package host

import (
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/mscclpp-go/mscclpp/framework"
)

// resident returns how much shared memory the process has mapped pages of.
func resident(t *testing.T) int {
	t.Helper()
	b, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		t.Fatal(err)
	}
	pages, err := strconv.Atoi(strings.Fields(string(b))[2])
	if err != nil {
		t.Fatal(err)
	}
	return pages * os.Getpagesize()
}

// Prefault holds for what is allocated and for what is mapped from elsewhere.
func TestPrefaultLimitsBothSides(t *testing.T) {
	const bytes, limit, slack = 64 << 20, 1 << 20, 16 << 20
	d, err := Open(Prefault(limit))
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	before := resident(t)
	m, err := d.Alloc(bytes)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if grown := resident(t) - before; grown > slack {
		t.Errorf("an allocation of %d bytes made %d resident, expected about %d", bytes, grown, limit)
	}
	shares, err := m.Export()
	if err != nil {
		t.Fatal(err)
	}
	defer framework.Parcel{Shares: shares}.Close()
	for _, s := range shares {
		if s.Kind != framework.ShareMemFD {
			continue
		}
		before = resident(t)
		p, err := d.Map(framework.Mapping{Role: framework.RolePeer, Shares: []framework.Share{s}, Bytes: bytes})
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		if grown := resident(t) - before; grown > slack {
			t.Errorf("a mapping of %d bytes made %d resident, expected about %d", bytes, grown, limit)
		}
		return
	}
	t.Fatal("memory is not shared as a memfd")
}
