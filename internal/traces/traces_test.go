package traces

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
			Calls:     []Call{call(1, 6000, 7100)},
			Moments:   []Moment{{Name: "epoch 1", At: 5000, Peer: -1}},
			Triggers:  []Trigger{{Writer: "proxy 1", Begin: 6100, End: 6400, Bytes: 128, Peer: 0, Queued: 2}, {Writer: "proxy 1", Begin: 6500, End: 6600, Peer: -1}},
			Transfers: []Transfer{{Writer: "proxy 1", Peer: 0, Begin: 6200, End: 6700, Requests: 2, Bytes: 128}},
			Puts:      []Put{{Channel: Channel{"world", "tcp", 0, 5}, At: 6050, Bytes: 100, Number: 3}, {Channel: Channel{"world", "tcp", 0, 5}, At: 6060, Bytes: 28, Number: 3, Signal: true}}},
		{Rank: 0, Size: 2, Host: "a", Device: "host", PID: 7, State: "running", Culprit: -1, Calls: []Call{call(2, 8000, 0), call(1, 1000, 7000)},
			Waits: []Wait{{Channel: Channel{"world", "tcp", 1, 5}, Begin: 1500, End: 6900, Number: 3}}},
	}}
	t.Finish()
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

// A wait is joined with the put whose signal ends it, and with all bytes that came with that.
func TestWaitsAreJoinedWithPuts(t *testing.T) {
	x := example()
	w, puts := x.RankOf(0).Waits[0], x.RankOf(1).Puts
	if w.Sent != 6060 || w.Bytes != 128 || puts[0].Got != 0 || puts[1].Got != 6900 {
		t.Errorf("%+v and %+v: expected 128 bytes, sent at 6060 and got at 6900", w, puts)
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

// slowExample is a job of four ranks over tcp, each of which sends to all others; some puts take longer.
func slowExample(took func(from, to, n int) int64) *Trace {
	t := &Trace{Job: "j"}
	for r := range 4 {
		t.Ranks = append(t.Ranks, &Rank{Rank: r, Size: 4})
	}
	for from := range 4 {
		for to := range 4 {
			for n := range 20 {
				if from == to {
					continue
				}
				c := Channel{Comm: "world", Transport: "tcp", Peer: to, Semaphore: from}
				at := int64(n+1) * 100_000_000
				t.Ranks[from].Puts = append(t.Ranks[from].Puts, Put{Channel: c, At: at, Bytes: 3000, Number: uint32(n), Signal: true})
				c.Peer = from
				t.Ranks[to].Waits = append(t.Ranks[to].Waits, Wait{Channel: c, Begin: at - 50_000, End: at + took(from, to, n), Number: uint32(n)})
			}
		}
	}
	t.Finish()
	return t
}

// A link is slow by its middle put, against the other links. Neither a few puts that took long make one slow, nor a rank that begins
// to wait when the data has long been there.
func TestSlowLinks(t *testing.T) {
	usual := func(n int) int64 { return 100_000 + int64(n)*1000 }
	for name, x := range map[string]struct {
		took func(from, to, n int) int64
		want string
	}{
		"none": {func(_, _, n int) int64 { return usual(n) }, ""},
		"one": {func(from, to, n int) int64 {
			if from == 1 && to == 3 {
				return 5_000_000
			}
			return usual(n)
		}, "the link from rank 1 to rank 3 over tcp is slower than its kind: 20 puts of up to 4 KiB took 5ms in the middle, and 110µs over 11 other links of tcp"},
		"a few puts": {func(from, to, n int) int64 {
			if from == 1 && to == 3 && n < 8 {
				return 50_000_000
			}
			return usual(n)
		}, ""},
		"a little": {func(from, to, n int) int64 {
			if from == 1 && to == 3 {
				return 250_000
			}
			return usual(n)
		}, ""},
	} {
		s := slowExample(x.took).Tell()
		if got := strings.Join(s.SlowLinks(), "\n"); got != x.want || len(s.Links) != 12 {
			t.Errorf("%s: %d links, %q: expected 12, %q", name, len(s.Links), got, x.want)
		}
	}
	late := slowExample(func(_, _, n int) int64 { return usual(n) })
	for i := range late.Ranks[2].Waits { // they end as they did, since the rank came late
		w := &late.Ranks[2].Waits[i]
		w.Begin, w.End = w.End+20_000_000, w.End+20_001_000
	}
	late.Finish()
	if lines := late.Tell().SlowLinks(); len(lines) > 0 {
		t.Errorf("a rank that waits late: %q", lines)
	}
}

// The stories of two parts of a job, merged, are that of the whole.
func TestStoriesAreMerged(t *testing.T) {
	whole := slowExample(func(from, to, n int) int64 { return int64(from+to+n) * 1000 })
	want := whole.Tell()
	parts := [2]*Trace{{Job: "j"}, {Job: "j"}}
	for _, r := range whole.Ranks {
		for i := range parts {
			p := &Rank{Rank: r.Rank, Size: 4}
			for _, x := range r.Puts {
				if int(x.Number)%2 == i {
					p.Puts = append(p.Puts, x)
				}
			}
			for _, x := range r.Waits {
				if int(x.Number)%2 == i {
					p.Waits = append(p.Waits, x)
				}
			}
			parts[i].Ranks = append(parts[i].Ranks, p)
		}
	}
	for _, p := range parts {
		p.Finish()
	}
	got := parts[0].Tell()
	got.merge(parts[1].Tell())
	if !reflect.DeepEqual(got.Links, want.Links) {
		t.Errorf("%+v: expected %+v", got.Links, want.Links)
	}
}

// A link is judged by the sizes in which it is slow, though it lags further behind in others that take no time; and against links of its
// kind alone: those between hosts take longer than those within one.
func TestSlowLinksAreOfTheirKind(t *testing.T) {
	times := func(n int, ns int64) (list []int64) {
		for range n {
			list = append(list, ns)
		}
		return list
	}
	link := func(from int, sameHost bool, times map[int][]int64) LinkTime {
		return LinkTime{From: from, To: 9, Transport: "tcp", SameHost: sameHost, times: times}
	}
	usual := func() map[int][]int64 { return map[int][]int64{3: times(20, 1000), 20: times(20, 1_000_000)} }
	for name, x := range map[string]struct {
		links []LinkTime
		slow  bool
		upTo  uint64
	}{
		"large puts are slow":   {[]LinkTime{link(0, false, map[int][]int64{3: times(20, 10_000), 20: times(20, 3_000_000)}), link(1, false, usual()), link(2, false, usual())}, true, 1 << 20},
		"too few puts":          {[]LinkTime{link(0, false, map[int][]int64{3: times(20, 1000), 20: times(fewPuts-1, 9_000_000)}), link(1, false, usual())}, false, 8},
		"too few of the others": {[]LinkTime{link(0, false, map[int][]int64{20: times(20, 9_000_000)}), link(1, false, map[int][]int64{20: times(fewPuts-1, 1000)})}, false, 1 << 20},
		"between hosts":         {[]LinkTime{link(0, false, map[int][]int64{20: times(20, 9_000_000)}), link(1, true, usual()), link(2, true, usual())}, false, 1 << 20},
	} {
		compare(x.links, 0)
		for i := range x.links {
			if l := &x.links[i]; l.From == 0 && (l.Slow != x.slow || l.UpTo != x.upTo) {
				t.Errorf("%s: %+v: expected slow: %v, by puts up to %d", name, l, x.slow, x.upTo)
			}
		}
	}
}

// Signals of two senders have the same numbers where one semaphore was used by both after each other, or by one in two channels. A wait is
// joined with the put that it waited for, also if the records of other puts and waits are missing.
func TestWaitsAreJoinedWithTheirSenders(t *testing.T) {
	put := func(at int64, bytes uint64) Put {
		return Put{Channel: Channel{"world", "tcp", 0, 5}, At: at, Bytes: bytes, Number: 1, Signal: true}
	}
	wait := func(from int, begin, end int64) Wait {
		return Wait{Channel: Channel{"world", "tcp", from, 5}, Begin: begin, End: end, Number: 1}
	}
	x := &Trace{Ranks: []*Rank{
		{Rank: 0, Waits: []Wait{wait(2, 100, 210), wait(1, 300, 410), wait(1, 500, 610), wait(1, 700, 810)}},
		{Rank: 1, Puts: []Put{put(400, 4), put(800, 8)}}, // that of the wait from 500 on is missing
		{Rank: 2, Puts: []Put{put(200, 2), put(900, 9)}}, // the last wait is missing
	}}
	x.Finish()
	for i, want := range []int64{200, 400, 0, 800} {
		if w := x.Ranks[0].Waits[i]; w.Sent != want || w.Bytes != uint64(want)/100 {
			t.Errorf("wait %d: %+v: expected the put of %d", i, w, want)
		}
	}
	for _, r := range x.Ranks[1:] {
		for i, p := range r.Puts {
			if want := p.At + 10; p.Got != want && (r.Rank != 2 || i != 1 || p.Got != 0) {
				t.Errorf("rank %d, put %d: %+v: expected that it is got at %d", r.Rank, i, p, want)
			}
		}
	}
}
