package remote

import (
	"errors"
	"strings"
	"testing"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/bootstrap"
)

func variables(pairs ...string) func(string) string {
	return func(name string) string {
		for _, p := range pairs {
			if n, v, _ := strings.Cut(p, "="); n == name {
				return v
			}
		}
		return ""
	}
}

func TestAddressesOfRank0(t *testing.T) {
	// The address by which ssh came stands first.
	got, err := addresses(t.Context(), &Spec{}, variables("SSH_CONNECTION=10.1.1.1 5 10.9.9.9 22"))
	if err != nil || got[0].String() != "10.9.9.9" || len(got) > maxAddresses {
		t.Errorf("%v, %v", got, err)
	}
	// A configured interface overrules it, and so does an address that was named.
	got, err = addresses(t.Context(), &Spec{Interface: "lo", Family: "inet"}, variables("SSH_CONNECTION=10.1.1.1 5 10.9.9.9 22"))
	if err != nil || !got[0].IsLoopback() || !got[0].Is4() {
		t.Errorf("%v, %v", got, err)
	}
	got, err = addresses(t.Context(), &Spec{At: "127.0.0.9"}, variables())
	if err != nil || len(got) != 1 || got[0].String() != "127.0.0.9" {
		t.Errorf("%v, %v", got, err)
	}
	for name, s := range map[string]*Spec{
		"no such interface": {Interface: "nosuch0"},
		"no such network":   {Interface: "203.0.113.0/24"},
		"another family":    {At: "127.0.0.1", Family: "inet6"},
	} {
		if got, err := addresses(t.Context(), s, variables()); !errors.Is(err, framework.ErrUnavailable) || !strings.Contains(err.Error(), "--master-addr") {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
}

// An address that holds on one link leads no rank of another host here.
func TestAddressOfALink(t *testing.T) {
	got, err := addresses(t.Context(), &Spec{}, variables("SSH_CONNECTION=fe80::2%eth0 5 fe80::1%eth0 22"))
	for _, a := range got {
		if a.IsLinkLocalUnicast() || a.IsLoopback() {
			t.Errorf("%v: expected none of a link, and none of this host alone", got)
		}
	}
	if err != nil && (!errors.Is(err, framework.ErrUnavailable) || !strings.Contains(err.Error(), "expected one, or --master-addr")) {
		t.Error(err)
	}
	got, err = addresses(t.Context(), &Spec{}, variables("SSH_CONNECTION=169.254.0.2 5 169.254.0.1 22")) // needs no zone
	if err != nil || got[0].String() != "169.254.0.1" {
		t.Errorf("%v, %v", got, err)
	}
	got, err = addresses(t.Context(), &Spec{At: "fe80::1%lo"}, variables())
	if !errors.Is(err, framework.ErrInvalid) || !strings.Contains(err.Error(), "--master-addr fe80::1%lo: an address of one link") {
		t.Errorf("%v, %v", got, err)
	}
}

// The listener takes connections at the address that the id names.
func TestMeetingPoint(t *testing.T) {
	f, m, err := listen(t.Context(), &Spec{At: "127.0.0.1"}, variables())
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	id, err := bootstrap.ParseUniqueID(m.UniqueID)
	if err != nil || len(id.Addresses()) != 1 || id.Addresses()[0].Addr().String() != "127.0.0.1" || m.MasterAddr != "127.0.0.1" {
		t.Fatalf("%v, %+v, %v", id.Addresses(), m.MasterAddr, err)
	}
	if id != id.Listening() {
		t.Error("the id does not say that a refused connection there is final")
	}
	busy := &Spec{At: "127.0.0.1"}
	busy.Place.MasterPort = int(id.Addresses()[0].Port())
	if _, _, err := listen(t.Context(), busy, variables()); !errors.Is(err, framework.ErrUnavailable) {
		t.Errorf("a port that is taken: %v", err)
	}
}
