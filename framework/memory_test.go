package framework

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestDeviceRoundTrip(t *testing.T) {
	for _, want := range []Device{Host, {Type: "cuda"}, {Type: "cuda", Index: 7}, {Type: "hip", Index: 1}, {Type: "toy2", Index: 3}} {
		got, err := ParseDevice(want.String())
		if err != nil || got != want {
			t.Errorf("ParseDevice(%q) = %v, %v", want.String(), got, err)
		}
	}
	if got, err := ParseDevice("cuda"); err != nil || got != (Device{Type: "cuda"}) {
		t.Errorf("ParseDevice(cuda) = %v, %v: a device without a number is the first", got, err)
	}
}

func TestParseDeviceRefuses(t *testing.T) {
	for _, s := range []string{"", "host:1", "2toy", "to-y", "toy!", strings.Repeat("a", 33), "cuda:", "cuda:-1", "cuda:x", "cuda:1:2", "CUDA:0"} {
		if d, err := ParseDevice(s); !errors.Is(err, ErrInvalid) {
			t.Errorf("ParseDevice(%q) = %v, %v: want ErrInvalid", s, d, err)
		}
	}
}

func TestShareKindHasFD(t *testing.T) {
	want := map[ShareKind]bool{
		ShareMemFD: true, ShareDMABuf: true, ShareVMM: true,
		ShareFabric: false, ShareLegacyIPC: false, ShareLocal: false, "unknown": false, "fd:toy": true, "toy-fd:": false,
	}
	for kind, has := range want {
		if kind.HasFD() != has {
			t.Errorf("%s.HasFD() = %v", kind, !has)
		}
	}
}

// file returns a share of a file that holds text.
func file(t *testing.T, text string) Share {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "segment"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	if _, err := f.WriteString(text); err != nil {
		t.Fatal(err)
	}
	return Share{Kind: ShareMemFD, FD: f}
}

func closed(f *os.File) bool {
	_, err := f.Stat()
	return errors.Is(err, os.ErrClosed)
}

func TestShareDupIsIndependent(t *testing.T) {
	original := file(t, "payload")
	d, err := original.Dup()
	if err != nil {
		t.Fatal(err)
	}
	if d.Kind != ShareMemFD || d.FD.Fd() == original.FD.Fd() {
		t.Fatalf("Dup() = %+v: the same descriptor or another kind", d)
	}
	if err := original.Close(); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 7)
	if _, err := d.FD.ReadAt(got, 0); err != nil || string(got) != "payload" {
		t.Errorf("read %q, %v after the original was closed", got, err)
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
}

func TestShareDupCopiesBlob(t *testing.T) {
	original := Share{Kind: ShareFabric, Blob: []byte{1, 2, 3}}
	d, err := original.Dup()
	if err != nil {
		t.Fatal(err)
	}
	original.Blob[0] = 9
	if !bytes.Equal(d.Blob, []byte{1, 2, 3}) || d.FD != nil {
		t.Errorf("Dup() = %+v: shares memory with the original", d)
	}
}

func TestShareDupOfClosed(t *testing.T) {
	s := file(t, "x")
	s.FD.Close()
	if _, err := s.Dup(); !errors.Is(err, ErrClosed) {
		t.Errorf("Dup() of a closed share: %v, want ErrClosed", err)
	}
}

func TestParcelDupAllOrNothing(t *testing.T) {
	before := openDescriptors(t)
	good, bad := file(t, "x"), file(t, "y")
	bad.FD.Close()
	if _, err := (Parcel{Shares: []Share{good, bad}}).Dup(); !errors.Is(err, ErrClosed) {
		t.Fatalf("Dup() = %v, want ErrClosed", err)
	}
	if now := openDescriptors(t); now != before+1 {
		t.Errorf("%d descriptors open, want %d: the failed Dup kept some", now, before+1)
	}
	p, err := Parcel{Data: []byte("k"), Shares: []Share{good}}.Dup()
	if err != nil || string(p.Data) != "k" || len(p.Shares) != 1 {
		t.Fatalf("Dup() = %+v, %v", p, err)
	}
	p.Close()
	if closed(good.FD) || !closed(p.Shares[0].FD) {
		t.Error("Close of the copy closed the original, or not the copy")
	}
}

func TestParcelCloseClosesAll(t *testing.T) {
	a, b := file(t, "a"), file(t, "b")
	p := Parcel{Shares: []Share{a, {Kind: ShareFabric, Blob: []byte{1}}, b}}
	a.FD.Close() // the error of the first must not keep the second open
	if err := p.Close(); !errors.Is(err, os.ErrClosed) {
		t.Errorf("Close() = %v, want the error of the first share", err)
	}
	if !closed(b.FD) {
		t.Error("Close left a descriptor open after an error")
	}
}

func openDescriptors(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}
