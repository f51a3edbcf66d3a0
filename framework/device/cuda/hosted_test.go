package cuda

import (
	"bytes"
	"errors"
	"testing"

	"github.com/mscclpp-go/mscclpp/framework"
)

// Memory of the host is written by one device and read by another, which need not
// reach each other.
func TestHosted(t *testing.T) {
	const size = 1 << 20
	a := open(t, 0, Hosted())
	b := a
	if n, err := Count(); err == nil && n > 1 {
		b = open(t, 1)
	}
	m, err := a.Alloc(size)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	shares, err := m.Export()
	if err != nil {
		t.Fatal(err)
	}
	defer framework.Parcel{Shares: shares}.Close()
	if len(shares) != 1 || shares[0].Kind != framework.ShareMemFD {
		t.Fatalf("shares %+v: expected a memfd alone", shares)
	}
	far, err := b.Map(framework.Mapping{Shares: shares, Offset: 4096, Bytes: 8192})
	if err != nil {
		t.Fatal(err)
	}
	defer far.Close()
	want := bytes.Repeat([]byte("mscclpp!"), 1024)
	if err := a.WriteAt(want, m.Addr()+4096); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, len(want))
	if err := b.ReadAt(got, far.Addr()); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Error("the other device reads other bytes")
	}
	if h := m.(*Memory).HostBytes(); len(h) != size || !bytes.Equal(h[4096:4096+8192], want) || h[0] != 0 {
		t.Error("the process reads other bytes, or memory that was not zero")
	}
}

func TestHostedEnds(t *testing.T) {
	d := open(t, 0, Hosted())
	m, err := d.Alloc(100)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := m.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := m.Export(); !errors.Is(err, framework.ErrClosed) {
		t.Errorf("export after close: %v: expected ErrClosed", err)
	}
	if _, err := d.Alloc(0); !errors.Is(err, framework.ErrInvalid) {
		t.Errorf("no bytes: %v: expected ErrInvalid", err)
	}
}
