package choose

import (
	"errors"
	"github.com/mscclpp-go/mscclpp/framework/collective"
	"testing"

	"github.com/mscclpp-go/mscclpp/framework"
)

func TestRanksThatShareAGPU(t *testing.T) {
	for name, x := range map[string]struct {
		ranks   []Surroundings
		sharing int
		noLines bool
	}{
		"each its own":     {[]Surroundings{{Device: "a"}, {Device: "b"}}, 1, false},
		"two of three":     {[]Surroundings{{Device: "a"}, {Device: "b"}, {Device: "a"}}, 2, false},
		"unknown devices":  {[]Surroundings{{}, {}, {}}, 1, false},
		"one says more":    {[]Surroundings{{Device: "a"}, {Device: "b", Sharing: 4}}, 4, false},
		"one without line": {[]Surroundings{{Device: "a"}, {Device: "b", NoLines: true}}, 1, true},
	} {
		sharing, noLines := InCommon(x.ranks)
		if sharing != x.sharing || noLines != x.noLines {
			t.Errorf("%s: %d ranks share, no lines: %v: want %d, %v", name, sharing, noLines, x.sharing, x.noLines)
		}
	}
}

// A rank is refused by its number, whatever it says of its device, or the values that all have in
// common stay usable: no rank shares a GPU with fewer ranks than itself, and with no fewer than
// those that say the same device.
func FuzzSurroundings(f *testing.F) {
	for _, seed := range []string{"", "{}", `{"Device":"a","Sharing":2,"NoLines":true}`, `{"Sharing":-9}`, `{"Sharing":9223372036854775807}`,
		`{"Sharing":9223372036854775808}`, `{"Device":7}`, `{"Address":"b","Links":{"Known":true,"NVLinks":[{"Peer":"a","Count":-7,"Version":-1}],"PCIe":-1}}`,
		`{"Name":"L4","Links":{"NVLinks":[{"Peer":"a","Count":9223372036854775807}],"PCIe":1e308}}`, `{"Major":-1,"Links":{"HostMemory":true}}`, `{"Device":"a"`, "null", "[]", "\x00\xff"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, said []byte) {
		list, err := Heard([][]byte{[]byte(`{"Device":"a","Sharing":1,"Address":"a"}`), said, []byte(`{"Device":"a"}`)})
		if err != nil {
			if !errors.Is(err, framework.ErrPeer) || framework.PeerOf(err) != 1 {
				t.Errorf("%q: %v: expected ErrPeer that names rank 1", said, err)
			}
			return
		}
		sharing, noLines := InCommon(list)
		if least := max(2, list[1].Sharing); len(list) != 3 || sharing < least || sharing > max(3, least) {
			t.Errorf("%q: %d of %d ranks share: expected %d, or 3", said, sharing, len(list), least)
		}
		if noLines != list[1].NoLines {
			t.Errorf("%q: no lines: %v", said, noLines)
		}
		joined := Joined(list, noLines)
		if l := joined.Links; !(l.Store > 0 && l.Load > 0 && l.Copy > 0 && l.Each > 0 && l.Memory > 0 && l.Latency > 0 && l.Store < 1e9) || l.Lines == noLines {
			t.Errorf("%q: %+v: expected links that carry something", said, joined)
		}
		if rows, _ := Builtin(Facts{Route: joined, Ranks: 5, CopyScratch: 1 << 30, Slots: Slots{1 << 20, 1 << 20, 1 << 20}}, offering(collective.AllReduce)); len(rows) < 2 {
			t.Errorf("%q: %v: expected rows for an all-reduce", said, rows)
		}
	})
}
