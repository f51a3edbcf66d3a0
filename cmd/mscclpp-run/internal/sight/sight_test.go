package sight

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/mscclpp-go/mscclpp/framework"
)

// example is a job of two ranks: rank 1 comes late to the first call, and has not begun the second.
func example() *Trace {
	call := func(n uint64, begin, end int64) Call {
		return Call{Comm: "world", Number: n, Kind: "allreduce", Algorithm: "ring", Bytes: 4096, Begin: begin, Chosen: begin + 10, End: end}
	}
	t := &Trace{Job: "j", Ranks: []*Rank{
		{Rank: 1, Size: 2, Host: "b", Device: "host", PID: 8, State: "failed", Failure: "rank 0: gone", Culprit: 0, ClockError: 900, Lost: 3,
			Calls:    []Call{call(1, 6000, 7100)},
			Moments:  []Moment{{Name: "epoch 1", At: 5000, Peer: -1}},
			Triggers: []Trigger{{Writer: "proxy 1", Begin: 6100, End: 6400, Bytes: 128}, {Writer: "proxy 1", Begin: 6500, End: 6600}}},
		{Rank: 0, Size: 2, Host: "a", Device: "host", PID: 7, State: "running", Culprit: -1, Calls: []Call{call(2, 8000, 0), call(1, 1000, 7000)}},
	}}
	t.finish()
	return t
}

// A trace that was written is read as it was.
func TestTracesAreReadAsTheyWereWritten(t *testing.T) {
	want := example()
	var b bytes.Buffer
	if err := want.WritePerfetto(&b); err != nil {
		t.Fatal(err)
	}
	got, err := Read(b.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, want) {
		for i := range want.Ranks {
			t.Errorf("%+v: expected %+v", got.Ranks[i], want.Ranks[i])
		}
	}
}

func TestStory(t *testing.T) {
	s := example().Tell()
	if s.Calls != 2 || s.Lost != 3 || s.Error != 900 {
		t.Errorf("%+v: expected 2 calls, 3 lost records and an error of 900 ns", s)
	}
	if c := s.Slowest; c == nil || c.Number != 1 || c.Took != 6100 || c.Late != 1 || c.LateBy != 5000 {
		t.Errorf("slowest: %+v: expected call 1, 6100 ns, rank 1 late by 5000", c)
	}
	if len(s.Late) != 1 || s.Late[0].Rank != 1 || s.Late[0].Cost != 5000 || s.Late[0].Times != 1 {
		t.Errorf("late: %+v: expected rank 1 at a cost of 5000 ns", s.Late)
	}
	if x := s.Split[0]; x.Choose != 10 || x.Wait != 5000 || x.Work != 990 {
		t.Errorf("rank 0: %+v: expected 10 ns to choose, 5000 to wait, 990 to work", x)
	}
	if len(s.Open) != 1 || s.Open[0].Number != 2 || len(s.Open[0].Without) != 1 || s.Open[0].Without[0] != 1 {
		t.Errorf("open: %+v: expected call 2 without rank 1", s.Open)
	}
	if len(s.Proxies) != 1 || s.Proxies[0].Triggers != 2 || s.Proxies[0].Bytes != 128 || s.Proxies[0].Took != 400 {
		t.Errorf("proxies: %+v: expected two triggers", s.Proxies)
	}
	var b strings.Builder
	s.Print(&b)
	for _, want := range []string{
		"rank 1 failed: rank 0: gone", "call 2 of world, allreduce of 4 KiB, has not ended on rank 0; rank 1 has not begun it",
		"clocks of hosts agree to 900ns", "3 records were overwritten",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("%s: expected it to say %q", b.String(), want)
		}
	}
}

// Other files, and what is left of a cut one, are refused or read, and never more than that.
func TestFilesThatAreNoTraces(t *testing.T) {
	var b bytes.Buffer
	if err := example().WritePerfetto(&b); err != nil {
		t.Fatal(err)
	}
	whole := b.Bytes()
	for n := range whole {
		if _, err := Read(whole[:n]); err != nil && !errors.Is(err, framework.ErrInvalid) {
			t.Fatalf("the first %d bytes: %v: expected an error of the class invalid", n, err)
		}
	}
	for _, text := range []string{"", "{}", "ELF and more of that", "\x0a\x02\xff\xff"} {
		if _, err := Read([]byte(text)); !errors.Is(err, framework.ErrInvalid) {
			t.Errorf("%q: %v: expected an error of the class invalid", text, err)
		}
	}
}

// The recorder keeps the newest folders, and nothing of others.
func TestOldFlightsMakeRoom(t *testing.T) {
	base := filepath.Join(t.TempDir(), "flight")
	if err := errors.Join(os.MkdirAll(filepath.Join(base, "20200101-notes"), 0o755), os.Mkdir(filepath.Join(base, "mine"), 0o755),
		os.WriteFile(filepath.Join(base, "20200101-notes", "text"), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	last := ""
	for range mostFlights + 3 {
		dir, err := example().WriteFlight(base, End{Rank: 0, What: "exited with code 3"})
		if err != nil {
			t.Fatal(err)
		}
		last = dir
	}
	entries, err := os.ReadDir(base)
	if err != nil {
		t.Fatal(err)
	}
	if n := len(entries); n < mostFlights || n > mostFlights+2 {
		t.Errorf("%d folders, expected %d and the two of others", n, mostFlights)
	}
	for _, name := range []string{"mine", "20200101-notes/text"} {
		if _, err := os.Stat(filepath.Join(base, name)); err != nil {
			t.Error(err)
		}
	}
	text, err := os.ReadFile(filepath.Join(last, "README"))
	if err != nil || !strings.HasPrefix(string(text), "rank 0 exited with code 3 in call 2 of world: allreduce of 4 KiB by ring\n") {
		t.Errorf("%s, %v: expected the party and the call in the first line", text, err)
	}
	if _, err := ReadAll([]string{last}); err != nil {
		t.Error(err)
	}
}
