package wire

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"github.com/mscclpp-go/mscclpp/framework"
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

func FuzzFrame(f *testing.F) {
	f.Add(Append(nil, KindGoodbye, 3, []byte("body")))
	f.Add(Append(nil, KindParcel, 1<<63, nil))
	f.Add(Append(nil, KindNotice, 0, make([]byte, 100))[:50])
	f.Add([]byte{0xff, 0xff, 0xff, 0x7f, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		got, err := Read(bytes.NewReader(b))
		if err != nil {
			if !errors.Is(err, io.EOF) {
				classed(t, err)
			}
			return
		}
		if again := Append(nil, got.Kind, got.Tag, got.Body); !bytes.Equal(again, b[:len(again)]) {
			t.Fatalf("%x became %x", b, again)
		}
	})
}

func FuzzParcel(f *testing.F) {
	f.Add(AppendParcel(nil, framework.Parcel{}, true))
	f.Add(AppendParcel(nil, framework.Parcel{Data: []byte("data"), Shares: []framework.Share{{Kind: "vendor", Blob: []byte("blob")}, {Kind: "v"}}}, true))
	f.Add([]byte{1, 0, 1, 0, 5, 'm', 'e', 'm', 'f', 'd', flagFD, 0, 0, 0, 0, 'x'})
	f.Add([]byte{1, 0, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, b []byte) {
		p, awaited, err := DecodeParcel(b)
		if err != nil {
			classed(t, err)
			return
		}
		if len(awaited) > 0 { // needs descriptors to be encoded
			for _, i := range awaited {
				if i >= len(p.Shares) {
					t.Fatalf("share %d of %d awaits a descriptor", i, len(p.Shares))
				}
			}
			return
		}
		if again := AppendParcel(nil, p, true); !bytes.Equal(again, b) {
			t.Fatalf("%x became %x", b, again)
		}
	})
}
