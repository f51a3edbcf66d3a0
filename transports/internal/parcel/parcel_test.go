package parcel

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/mscclpp-go/mscclpp/framework"
)

var head = Head{Magic: [4]byte{'T', 'E', 'S', 'T'}, Version: 3, Transport: "test"}

const kind = 7

func refused(t *testing.T, what string, err error, parts ...string) {
	t.Helper()
	if framework.Class(err) != framework.ErrPeer {
		t.Errorf("%s: %v: expected ErrPeer", what, err)
		return
	}
	for _, p := range parts {
		if !strings.Contains(err.Error(), p) {
			t.Errorf("%s: %v: expected it to say %q", what, err, p)
		}
	}
}

func TestHead(t *testing.T) {
	b := head.Append([]byte("before"), kind)[len("before"):]
	if want := []byte("TEST\x03\x07"); !bytes.Equal(b, want) || len(b) != HeadBytes {
		t.Fatalf("%q, expected %q", b, want)
	}
	if err := head.Check(append(b, "whatever"...), kind, "key"); err != nil {
		t.Error(err)
	}
	for n := range HeadBytes {
		refused(t, "cut", head.Check(b[:n], kind, "key"), "no key of test")
		other := bytes.Clone(b)
		other[n]++
		refused(t, "changed", head.Check(other, kind, "key"), "key")
	}
	newer := head
	newer.Version++
	refused(t, "another version", head.Check(newer.Append(nil, kind), kind, "key"), "version 4", "expected 3", "different builds")
	refused(t, "another type", head.Check(head.Append(nil, kind+1), kind, "key"), "expected key")
}

func TestSealed(t *testing.T) {
	const before = "not part of it"
	for _, fields := range []string{"", "x", "some fields"} {
		b := append(head.Append([]byte(before), kind), fields...)
		b = Seal(b, len(before))[len(before):]
		if got, err := head.Unseal(framework.Parcel{Data: b}, kind, "key"); err != nil || string(got) != fields {
			t.Errorf("%q, %v: expected %q", got, err, fields)
		}
		for n := range b {
			_, err := head.Unseal(framework.Parcel{Data: b[:n]}, kind, "key")
			refused(t, "cut", err, "key")
			for bit := range 8 {
				bad := bytes.Clone(b)
				bad[n] ^= 1 << bit
				_, err := head.Unseal(framework.Parcel{Data: bad}, kind, "key")
				refused(t, "damaged", err, "key")
			}
		}
		_, err := head.Unseal(framework.Parcel{Data: append(bytes.Clone(b), 0)}, kind, "key")
		refused(t, "too long", err, "checksum")
		share := framework.Share{Kind: framework.ShareMemFD, FD: os.Stdin}
		_, err = head.Unseal(framework.Parcel{Data: b, Shares: []framework.Share{share}}, kind, "key")
		refused(t, "with a share", err, "1 shares", "expected none")
	}
}
