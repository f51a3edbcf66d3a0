package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/mscclpp-go/mscclpp/bench"
	"github.com/mscclpp-go/mscclpp/bench/compare"
	"github.com/mscclpp-go/mscclpp/bench/sizes"
	"github.com/mscclpp-go/mscclpp/internal/processors"
)

// job is one comparison.
type job struct {
	compare.Runner
	self, peer, mpirun, mpiPeer          string
	first, second, firstAddr, secondAddr string
	jobs                                 int // started so far
	facts                                facts
}

// facts are what machine.json says.
type facts struct {
	compare.Machine
	Congestion string            `json:"system_congestion_control"`
	Ours       string            `json:"our_congestion_control"` // within a host; also that of both sides where it is equal
	Sizes      map[string]string `json:"bytes_by_factors_of_4"`  // of each operation
	Tables     []string          `json:"tables"`                 // names of settings, with a file of raw output each
}

// setting is one table, with the target for it.
type setting struct {
	name, text string
	what       string // put, pingpong or allreduce
	streams    int
	spaces     bool    // over network namespaces
	alike      bool    // both sides have the congestion control that ours has within a host
	most       float64 // target for our time over theirs, at every size; 0: none
}

// alike is the congestion control of both sides where they have the same.
const alike = "reno"

// ranges of sizes of what is compared, by factors of 4.
var ranges = map[string]string{"put": "4K:16M", "pingpong": "8", "allreduce": "1K:64M"}

// settings are all that can be compared.
var settings = func() (all []setting) {
	for _, spaces := range []bool{false, true} {
		where, text := "loopback", "loopback"
		if spaces {
			where, text = "namespaces", "two network namespaces"
		}
		for _, streams := range []int{1, 4} {
			s := setting{name: fmt.Sprintf("%s-put-%d", where, streams), text: fmt.Sprintf("Puts over %s, %s", map[int]string{1: "1 stream", 4: "4 streams"}[streams], text), what: "put", streams: streams, spaces: spaces, most: 1 / 0.9}
			all = append(all, s)
			s.name, s.text, s.alike = s.name+"-alike", s.text+", equal congestion control", true
			all = append(all, s)
		}
		all = append(all, setting{name: where + "-latency", text: "Latency, " + text, what: "pingpong", streams: 1, spaces: spaces})
	}
	return append(all, setting{name: "loopback-allreduce", text: "All-reduce, loopback", what: "allreduce", streams: 4, most: 1})
}()

// possible says whether this machine can compare a setting.
func (j *job) possible(s setting) bool {
	return (j.first != "" || !s.spaces) && (j.mpirun != "" || s.what != "allreduce")
}

// run returns how many targets are missed.
func (j *job) run(ctx context.Context) (missed int, err error) {
	return j.Run(&j.facts, func() error { return j.measure(ctx) }, j.summary)
}

func (j *job) measure(ctx context.Context) error {
	j.facts.Sizes, j.facts.Ours, j.facts.Congestion = ranges, alike, "unknown"
	if text, err := os.ReadFile("/proc/sys/net/ipv4/tcp_congestion_control"); err == nil {
		j.facts.Congestion = strings.TrimSpace(string(text))
	}
	for _, s := range settings {
		if j.possible(s) {
			j.facts.Tables = append(j.facts.Tables, s.name)
		}
	}
	if err := j.Begin(&j.facts); err != nil {
		return err
	}
	for _, name := range j.facts.Tables {
		s, t, err := j.table(name)
		if err == nil {
			err = j.InTurn(ctx, t, func(turn int) (ours, theirs [][]string) {
				j.jobs++
				return j.ourCommands(s, t.Turns[turn]), [][]string{j.theirCommand(s, t.Turns[turn])}
			})
		}
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// table returns what the raw output of a setting has: one turn.
func (j *job) table(name string) (setting, compare.Table, error) {
	i := slices.IndexFunc(settings, func(s setting) bool { return s.name == name })
	if i < 0 {
		return setting{}, compare.Table{}, fmt.Errorf("machine.json lists table %q: expected names of settings, such as %s", name, settings[0].name)
	}
	sweep, err := sizes.ParseRange(j.facts.Sizes[settings[i].what], 4)
	if err != nil {
		return setting{}, compare.Table{}, fmt.Errorf("bytes_by_factors_of_4 of %s: %w", settings[i].what, err)
	}
	var turn []compare.Key
	for _, bytes := range sweep.List() {
		turn = append(turn, compare.Key{Collective: settings[i].what, Bytes: bytes})
	}
	return settings[i], compare.Table{Name: name, Turns: [][]compare.Key{turn}}, nil
}

// total is how many bytes a point moves in one run: so many that the last sleep of the caller
// that waits for the flush, of up to a millisecond, does not count.
const total = 96 << 20

func points(turn []compare.Key) []string {
	var all []string
	for _, k := range turn {
		b := int(k.Bytes)
		switch k.Collective {
		case "pingpong":
			all = append(all, point{b, 2000}.String())
		case "put":
			all = append(all, point{b, max(8, total/b)}.String())
		default:
			p := bench.DefaultPlan(k.Bytes)
			all = append(all, fmt.Sprintf("%d:%d:%d", b, p.Iterations, p.Calls))
		}
	}
	return all
}

// ourCommands are those of two hosts with one rank each.
func (j *job) ourCommands(s setting, turn []compare.Key) [][]string {
	addr, port := "127.0.0.1", 29600+(os.Getpid()+j.jobs)%2000
	if s.spaces {
		addr = j.firstAddr
	}
	all := make([][]string, 2)
	for host := range all {
		var c []string
		if s.spaces {
			c = []string{"ip", "netns", "exec", []string{j.first, j.second}[host]}
		}
		if cores, err := processors.Allowed(); err == nil && s.what == "allreduce" && len(cores) > 1 {
			// mpirun binds two ranks to a core each, and two hosts share none.
			c = append(c, "taskset", "-c", strconv.Itoa(cores[host]))
		}
		c = append(c, "env", fmt.Sprintf("MSCCLPP_BOOTSTRAP__HOST_ID=host-%d", host), fmt.Sprintf("MSCCLPP_TRANSPORT__TCP__STREAMS=%d", s.streams))
		if s.alike {
			c = append(c, "MSCCLPP_TRANSPORT__TCP__LOCAL_CONGESTION="+alike)
		}
		c = append(c, j.Launcher, "-N", "2", "--node-rank", strconv.Itoa(host), "--master-addr", addr, "--master-port", strconv.Itoa(port),
			"--transports", "tcp", "-n", "1")
		if s.what == "allreduce" {
			c = append(c, "bench", "allreduce", "--bytes", fmt.Sprintf("%d:%d", turn[0].Bytes, turn[len(turn)-1].Bytes), "--factor", "4", "--check", "--format", "json")
		} else {
			c = append(append(c, j.self, s.what), points(turn)...)
		}
		all[host] = c
	}
	return all
}

func (j *job) theirCommand(s setting, turn []compare.Key) []string {
	if s.what == "allreduce" {
		c := []string{j.mpirun, "-n", "2", "--oversubscribe", "--mca", "btl", "tcp,self", "--mca", "pml", "ob1", "--mca", "btl_tcp_if_include", "lo"}
		if os.Geteuid() == 0 {
			c = append(c, "--allow-run-as-root")
		}
		return append(append(c, j.mpiPeer, "allreduce"), points(turn)...)
	}
	c := []string{j.peer}
	if s.spaces {
		c = append(c, "-at", j.secondAddr, "-from", "/run/netns/"+j.first, "-to", "/run/netns/"+j.second)
	}
	if s.alike {
		c = append(c, "-congestion", alike)
	}
	c = append(c, s.what)
	if s.what == "put" {
		c = append(c, strconv.Itoa(s.streams))
	}
	return append(c, points(turn)...)
}
