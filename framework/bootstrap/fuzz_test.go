package bootstrap

import (
	"bytes"
	"encoding/hex"
	"errors"
	"io"
	"net/netip"
	"testing"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/bootstrap/internal/handshake"
)

// The decoders of this package see bytes of other processes. From any bytes, a decoder returns an
// error of the right class or a value that encodes to the same bytes again; it does not panic, and
// does not believe a length.

func classed(t *testing.T, err error) {
	t.Helper()
	if !errors.Is(err, framework.ErrPeer) && !errors.Is(err, framework.ErrInvalid) {
		t.Fatalf("error without a class: %v", err)
	}
}

func FuzzUniqueID(f *testing.F) {
	id, err := NewUniqueID(netip.MustParseAddrPort("192.0.2.1:29500"), netip.MustParseAddrPort("[2001:db8::1]:29500"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(id.String())
	f.Add(id.String()[:60])
	f.Add(idPrefix)
	f.Add("mscclpp2-AAAA")
	f.Fuzz(func(t *testing.T, text string) {
		id, err := ParseUniqueID(text)
		if err != nil {
			classed(t, err)
			return
		}
		if again, err := ParseUniqueID(id.String()); err != nil || again != id || len(id.Addresses()) == 0 {
			t.Fatalf("%v, %v", again, err)
		}
	})
}

func FuzzTable(f *testing.F) {
	e := entry{rank: 3, ip: netip.MustParseAddr("192.0.2.1").As16(), port: 80, host: [16]byte{1}, socket: [16]byte{2}}
	f.Add(e.append(nil))
	f.Add(e.append(e.append(nil)))
	f.Add(e.append(nil)[:55])
	f.Fuzz(func(t *testing.T, b []byte) {
		table, err := decodeTable(b, 16)
		if err != nil {
			classed(t, err)
			return
		}
		var again []byte
		for _, e := range table {
			if e.rank >= 16 || e.port == 0 {
				t.Fatalf("%+v", e)
			}
			_ = e.addr(netip.MustParseAddr("fe80::1%lo")).String()
			again = e.append(again)
		}
		if len(again) != len(b) {
			t.Fatalf("%d bytes became %d", len(b), len(again))
		}
	})
}

// script is a connection whose other end says what the fuzzer says.
type script struct {
	io.Reader
	written bytes.Buffer
}

func (s *script) Write(b []byte) (int, error) { return s.written.Write(b) }

// No process gets through the handshake, on either side, without the key.
func FuzzHandshake(f *testing.F) {
	h := handshake.Hello{Version: handshake.Version, Purpose: handshake.Link, From: 1, To: 0, Size: 2, Job: [16]byte{5}}
	f.Add(append(h.Encode(), make([]byte, handshake.ProofSize)...))
	f.Add(h.Encode()[:30])
	f.Add(append(handshake.Answer{Version: handshake.Version, Rank: 1}.Encode(), make([]byte, handshake.FinalSize)...))
	f.Add(handshake.Answer{Version: handshake.Version, Refusal: handshake.RefusedSize}.Encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		c := handshake.Party{Identity: handshake.Identity{Job: [16]byte{5}, Key: []byte("key")}, Rank: 0, Size: 2}
		if _, proved, err := c.Accept(&script{Reader: bytes.NewReader(b)}, true, nil); err == nil || proved {
			t.Fatalf("accepted %s", hex.EncodeToString(b))
		}
		if err := c.Dial(&script{Reader: bytes.NewReader(b)}, handshake.Link, 1); err == nil {
			t.Fatalf("believed %s", hex.EncodeToString(b))
		} else {
			classed(t, err)
		}
	})
}
