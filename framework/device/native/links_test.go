package native

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/mscclpp-go/mscclpp/framework"
)

func openLinked(t *testing.T, defines ...string) (*Device, error) {
	t.Helper()
	b, err := loadFile(compiled(t, append([]string{"-DCODE=0", "-DCAPABILITIES=MSCCLPP_DEVICE_HAS_LINKS"}, defines...)...))
	if err != nil {
		t.Fatal(err)
	}
	d, err := b.Open(0, "")
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d.(*Device), nil
}

func TestLinksOfATable(t *testing.T) {
	d, err := openLinked(t)
	if err != nil {
		t.Fatal(err)
	}
	want := []framework.DeviceLink{
		{Peer: "20202020-2020-2020-2020-202020202000", Count: 1, Kind: "AcmeLink 2", Rate: 100, Latency: 0.9},
		{Peer: "0000:3b:00.0", Count: 2, Switch: true, Kind: "AcmeLink 2", Rate: 100, Latency: 0.9},
	}
	self, got, known := d.Links()
	if !known || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, known %v: expected %+v", got, known, want)
	}
	if self != "11111111-1111-1111-1111-111111111111" {
		t.Errorf("the device itself is %q: expected the UUID of one that is on no bus", self)
	}
	for name, defines := range map[string][]string{
		"a table without links":               {"-UCAPABILITIES", "-DCAPABILITIES=0"},
		"a machine whose links are not known": {"-DUNKNOWN_FROM=0"},
		"links of which some are not known":   {"-DUNKNOWN_FROM=1"},
	} {
		silent, err := openLinked(t, defines...)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if _, got, known := silent.Links(); known || len(got) != 0 {
			t.Errorf("%+v, known %v, of %s", got, known, name)
		}
	}
}

// A list that cannot be right is named when the device is opened.
func TestLinksThatAreRefused(t *testing.T) {
	for name, c := range map[string]struct{ define, want string }{
		"to nothing":    {"-DLINK=memset(l->pci,0,32),memset(l->uuid,0,16)", "link 1 names no device"},
		"to itself":     {"-DLINK=memset(l->pci,0,32),memset(l->uuid,0x11,16)", "link 1 leads to the device itself"},
		"twice":         {"-DLINK=memset(l->pci,0,32),memset(l->uuid,0x20,16),l->uuid[15]=0", "link 1 leads to 20202020-2020-2020-2020-202020202000, as one before it does"},
		"none of them":  {"-DLINK=l->count=0", "link 1 has a count of 0: expected 1 to 4096"},
		"too many":      {"-DLINK=l->count=70000", "link 1 has a count of 70000"},
		"without end":   {"-DENDLESS", "the list has no end"},
		"of no address": {"-DOWN=memset(i->uuid,0,16)", "neither an address on the bus nor a UUID"},
	} {
		if _, err := openLinked(t, c.define); !errors.Is(err, framework.ErrInvalid) || !strings.Contains(err.Error(), "acme:0 links: ") || !strings.Contains(err.Error(), c.want) {
			t.Errorf("links %s: %v: expected ErrInvalid with %q", name, err, c.want)
		}
	}
}
