package bootstrap

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"testing"

	"github.com/mscclpp-go/mscclpp/framework"
)

func newID(t testing.TB) UniqueID {
	t.Helper()
	id, err := NewUniqueID(netip.MustParseAddrPort("192.0.2.1:29500"), netip.MustParseAddrPort("[2001:db8::1]:29500"))
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func TestUniqueIDSurvives(t *testing.T) {
	id := newID(t)
	if got := fmt.Sprint(id.Addresses()); got != "[192.0.2.1:29500 [2001:db8::1]:29500]" {
		t.Errorf("addresses %s", got)
	}
	if got, err := ParseUniqueID(" " + id.String() + "\n"); err != nil || got != id {
		t.Errorf("as text: %v", err)
	}
	if got, err := UniqueIDFromBytes(id[:]); err != nil || got != id {
		t.Errorf("as bytes: %v", err)
	}
	text, err := json.Marshal(id)
	if err != nil {
		t.Fatal(err)
	}
	var got UniqueID
	if err := json.Unmarshal(text, &got); err != nil || got != id {
		t.Errorf("as JSON: %v", err)
	}
	if other := newID(t); other.Job() == id.Job() || bytes.Equal(other.secret(), id.secret()) {
		t.Error("two ids share a job or a secret")
	}
}

func TestUniqueIDRejects(t *testing.T) {
	id := newID(t)
	change := func(at int, to byte) string {
		c := id
		c[at] ^= to
		return c.String()
	}
	for name, c := range map[string]struct{ text, wanted string }{
		"empty":       {"", "begins with"},
		"version":     {"mscclpp2-" + id.String()[len(idPrefix):], "begins with"},
		"not base64":  {idPrefix + "!!", "base64url"},
		"cut":         {id.String()[:len(id.String())-4], "unique id"},
		"longer":      {id.String() + "AAAA", "expected 128"},
		"magic":       {change(0, 1), "MSID"},
		"bit flipped": {change(70, 1), "checksum"},
		"old version": {change(4, 2), "version 3"},
	} {
		_, err := ParseUniqueID(c.text)
		if !errors.Is(err, framework.ErrInvalid) || !strings.Contains(fmt.Sprint(err), c.wanted) {
			t.Errorf("%s: %v, expected to say %q", name, err, c.wanted)
		}
		if c.text != "" && err != nil && strings.Contains(err.Error(), id.String()[60:80]) {
			t.Errorf("%s: the error quotes the secret", name)
		}
	}
	for _, bad := range [][]netip.AddrPort{
		nil,
		make([]netip.AddrPort, 1),
		{netip.MustParseAddrPort("0.0.0.0:1")},
		{netip.MustParseAddrPort("192.0.2.1:0")},
		{netip.MustParseAddrPort("192.0.2.1:1"), netip.MustParseAddrPort("192.0.2.2:1"), netip.MustParseAddrPort("192.0.2.3:1"), netip.MustParseAddrPort("192.0.2.4:1")},
	} {
		if _, err := NewUniqueID(bad...); !errors.Is(err, framework.ErrInvalid) {
			t.Errorf("%v: %v, expected ErrInvalid", bad, err)
		}
	}
}

func TestUniqueIDIsNotLogged(t *testing.T) {
	id := newID(t)
	var out bytes.Buffer
	slog.New(slog.NewTextHandler(&out, nil)).Info("start", "id", id)
	if strings.Contains(out.String(), id.String()[40:60]) || !strings.Contains(out.String(), "192.0.2.1:29500") {
		t.Errorf("log: %s", out.String())
	}
}
