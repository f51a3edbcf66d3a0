package negotiate

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/mscclpp-go/mscclpp/framework"
)

func TestChooseIsTheFirstCommonInTheLowerRanksOrder(t *testing.T) {
	lower := []offer{
		{Name: "nvlink", Reach: []string{"nvlink:a/1"}},
		{Name: "ib", Reach: []string{"ib:7", "ib:9"}},
		{Name: "tcp", Reach: []string{"any"}},
	}
	for _, test := range []struct {
		higher []offer
		want   string
	}{
		{[]offer{{Name: "tcp", Reach: []string{"any"}}, {Name: "nvlink", Reach: []string{"nvlink:a/1"}}}, "nvlink"},
		{[]offer{{Name: "nvlink", Reach: []string{"nvlink:b/1"}}, {Name: "ib", Reach: []string{"ib:9"}}}, "ib"},
		{[]offer{{Name: "nvlink", Reach: []string{"nvlink:a/1"}, Why: "no device"}, {Name: "tcp", Reach: []string{"any"}}}, "tcp"},
	} {
		if got, err := choose(lower, test.higher); err != nil || got != test.want {
			t.Errorf("choose(%v) = %q, %v; expected %q", test.higher, got, err, test.want)
		}
	}
	_, err := choose(lower, []offer{{Name: "ib", Why: "port down"}})
	if !errors.Is(err, framework.ErrUnavailable) || !strings.Contains(err.Error(), "port down") {
		t.Errorf("no common transport: %v", err)
	}
	// Transports that work and do not lead there need another beside them; a port that is
	// down has its own advice.
	const advice = "expected one that reaches both, such as tcp, in transports on all ranks"
	_, here := choose([]offer{{Name: "shm", Reach: []string{"host:a"}}}, []offer{{Name: "shm", Reach: []string{"host:b"}}})
	if here == nil || !strings.Contains(here.Error(), advice) || strings.Contains(err.Error(), advice) {
		t.Errorf("%v; %v: expected %q in the first alone", here, err, advice)
	}
}

// A reason that both sides share is given once, and the rest of each side by itself.
func TestOffersInCommon(t *testing.T) {
	down, slow := offer{Name: "ib", Why: "port down"}, offer{Name: "ib", Why: "no adapter"}
	here, there := offer{Name: "shm", Reach: []string{"host:a"}}, offer{Name: "shm", Reach: []string{"host:b"}}
	for _, x := range []struct {
		lower, higher []offer
		want          string
	}{
		{[]offer{down}, []offer{down}, "both ranks lack ib (port down)"},
		{[]offer{here, down}, []offer{there, down}, "both ranks lack ib (port down); lower rank offers shm [host:a]; higher rank offers shm [host:b]"},
		{[]offer{down}, []offer{slow}, "lower rank offers ib (port down); higher rank offers ib (no adapter)"},
		{[]offer{down}, []offer{there, down}, "both ranks lack ib (port down); lower rank offers no other; higher rank offers shm [host:b]"},
		{nil, []offer{there}, "lower rank offers none of this kind; higher rank offers shm [host:b]"},
		{nil, nil, "lower rank offers none of this kind; higher rank offers none of this kind"},
	} {
		if got := describeBoth(x.lower, x.higher); got != x.want {
			t.Errorf("%q, expected %q", got, x.want)
		}
	}
}

// In every round each rank must meet a rank that meets it, or set-up deadlocks.
func TestTournamentPairsEverybodyOnce(t *testing.T) {
	for n := 2; n <= 12; n += 2 {
		met := make(map[string]int)
		for round := range n - 1 {
			for p := range n {
				q := tournament(p, round, n)
				if q == p || tournament(q, round, n) != p {
					t.Fatalf("%d players, round %d: %d meets %d, who meets %d", n, round, p, q, tournament(q, round, n))
				}
				met[fmt.Sprint(p, q)]++
			}
		}
		if len(met) != n*(n-1) {
			t.Errorf("%d players: %d ordered pairs met, expected %d", n, len(met), n*(n-1))
		}
	}
}

func FuzzUnpackOffers(f *testing.F) {
	f.Add([]byte(`[{"name":"shm","reach":["host:a"],"data":"AAE=","shares":1}]`))
	f.Add([]byte(`[{"shares":-1}]`))
	f.Fuzz(func(t *testing.T, data []byte) {
		_, _, err := unpackOffers(framework.Parcel{Data: data, Shares: make([]framework.Share, 2)})
		if err != nil && !errors.Is(err, framework.ErrPeer) {
			t.Errorf("error without a class: %v", err)
		}
	})
}
