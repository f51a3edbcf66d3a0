package intra

import (
	"crypto/rand"
	"errors"
	"os"
	"testing"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/framework"
)

// An id from another container may be that of some other process, or of none.
func TestIntroductionIsVerified(t *testing.T) {
	secret := new([16]byte)
	rand.Read(secret[:])
	good := processID{pid: uint64(os.Getpid()), addr: uint64(uintptr(unsafe.Pointer(secret))), nonce: *secret}
	if err := good.verify(); err != nil {
		t.Fatalf("own process: %v", err)
	}
	forged, gone, elsewhere := good, good, good
	forged.nonce[3] ^= 1
	gone.pid = 1<<22 + 1 // beyond the largest id that Linux gives
	elsewhere.addr = 8
	for name, i := range map[string]processID{"another nonce": forged, "no such process": gone, "no such address": elsewhere} {
		if err := i.verify(); !errors.Is(err, framework.ErrUnavailable) {
			t.Errorf("%s: %v, expected ErrUnavailable", name, err)
		}
	}
}

func TestIntroductionTravels(t *testing.T) {
	want := processID{pid: 7, addr: 1 << 60, nonce: [16]byte{1, 15: 9}}
	b := want.encode()
	if got, err := decodeProcessID(b); err != nil || got != want {
		t.Errorf("%+v, %v, expected %+v", got, err, want)
	}
	for _, bad := range [][]byte{nil, b[:31], append(b, 0)} {
		if _, err := decodeProcessID(bad); !errors.Is(err, framework.ErrPeer) {
			t.Errorf("%d bytes: %v, expected ErrPeer", len(bad), err)
		}
	}
}
